"""Waiting for things that processes do in their own time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 20.0
"""Seconds that anything may take on a busy machine, unless a test is about how long it takes."""

PROMPT = 25.0
"""Seconds in which a request is answered whose work was done again: one on a quiet machine, and never a minute."""

_LOOK = 0.02  # s between two looks


async def until(condition: Callable[[], Any | Awaitable[Any]], patience: float = PATIENCE, what: str = "") -> float:
    """Look until a condition, async or not, is true; gives the seconds it took, and fails with `what` otherwise."""
    began = time.monotonic()
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        took = time.monotonic() - began
        if found:
            return took
        assert took < patience, f"after {patience:g} s still not so: {what or _source(condition)}"
        await asyncio.sleep(_LOOK)


def _source(condition: Callable[[], Any]) -> str:
    return inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)
