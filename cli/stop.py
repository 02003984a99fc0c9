"""What Ctrl-C and SIGTERM do to a process that has children."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any


class Stop:
    """The first signal asks for an orderly end; the second calls what is in `at_once`, to cut the wait short."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.twice = False
        self.at_once: list[Callable[[], None]] = []
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, self._signalled)

    def _signalled(self) -> None:
        self.twice = self.asked.is_set()
        self.asked.set()
        if self.twice:
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
