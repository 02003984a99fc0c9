"""Whose turn it is for a few places: those who came first, but all of the online lane before any of bulk."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from infinity_pool.broker.messages import Lane

_Turn = tuple[bool, int, "asyncio.Future[None]"]


class Turns:
    """So many places; who waits for one is let in by lane, then by age."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[_Turn] = []
        self._numbers = itertools.count()

    @asynccontextmanager
    async def one(self, lane: Lane) -> AsyncIterator[None]:
        """Hold a place, once it is one's turn."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(lane)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, lane: Lane) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (lane == "bulk", next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just been given the place
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
