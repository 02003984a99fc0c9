"""Nothing grows with the number of requests, connections or tokens that have gone by."""

from collections.abc import Callable
from typing import Any

from .baseline import back_to
from .conftest import Stack
from .load import Load

Start = Callable[..., Any]


async def test_memory_and_threads_stay_as_they_are(stack: Stack) -> None:
    await many(stack, 700)
    before = stack.look()
    await many(stack, 2000)
    await back_to(before, stack.look, growth=8.0)


async def many(stack: Stack, requests: int) -> None:
    """Send so many requests, each on a connection of its own, of all lengths and sizes."""
    async with Load(stack.urls, "m", clients=16, pause=0.0, most_items=20, new_connections=True) as load:
        await load.more(requests, 60)
    assert load.tally.flawless(), load.tally
