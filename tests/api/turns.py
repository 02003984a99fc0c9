"""Whether others have their turn on the event loop while something long is under way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """How many another task had."""

    count = 0


@contextmanager
def another_task() -> Iterator[Turns]:
    """Run a task that takes every turn it gets, and give their count."""
    turns = Turns()

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            turns.count += 1

    task = asyncio.create_task(other())
    try:
        yield turns
    finally:
        task.cancel()
