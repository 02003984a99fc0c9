"""What Ctrl-C, SIGTERM and a terminal that closes do to a process that has children."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from infinity_pool.workers.supervision.signals import on_end


class Stop:
    """The first signal asks for an orderly end; the second calls what is in `at_once`, to cut the wait short."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.twice = False
        self.at_once: list[Callable[[], None]] = []
        on_end(self.asked.set, self._hurry)

    def _hurry(self) -> None:
        self.twice = True
        for hurry in self.at_once:
            hurry()


async def first_end(*things: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of several things ends, and cancel the others; raises what it raised."""
    tasks = [asyncio.ensure_future(thing) for thing in things]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*done)
