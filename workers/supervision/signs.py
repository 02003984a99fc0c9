"""How a child shows its parent that its event loop turns: a byte now and then through a pipe, with no queue between."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_VARIABLE = "INFINITY_SIGNS"
_EVERY = 0.5  # s between two signs
_CHUNK = 2**12


class Signs:
    """
    The parent's side: hand `descriptor` and `environment` to one child, then watch; to be closed in the end.

    It is made where an event loop runs.
    """

    def __init__(self) -> None:
        self._source, self.descriptor = os.pipe()  # ours stays open too, or the end of a child would look like signs
        os.set_blocking(self._source, False)
        self.environment = {_VARIABLE: str(self.descriptor)}
        self._came = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._source, self._read)

    async def until_silent(self, seconds: float) -> None:
        """
        Wait until there were signs, and then none for so long.

        The time is two halves, so that a parent that was itself stopped for a while gives its child the second one.
        """
        await self._came.wait()
        silent = 0
        while silent < 2:
            silent = 0 if await self._comes_within(seconds / 2) else silent + 1

    def close(self) -> None:
        """Look no more."""
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self._source)
        os.close(self.descriptor)

    def _read(self) -> None:
        os.read(self._source, _CHUNK)
        self._came.set()

    async def _comes_within(self, seconds: float) -> bool:
        self._came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._came.wait()
        return self._came.is_set()


@asynccontextmanager
async def giving_signs() -> AsyncIterator[None]:
    """Give signs to the parent for as long as this lasts, if it has asked for them."""
    descriptor = os.environ.pop(_VARIABLE, None)
    if descriptor is None:
        yield
        return
    os.set_blocking(int(descriptor), False)
    giving = asyncio.create_task(_give(int(descriptor)), name="signs of life")
    try:
        yield
    finally:
        giving.cancel()


async def _give(descriptor: int) -> None:
    while True:
        with suppress(BlockingIOError):  # a parent that does not read just now has enough to read later
            os.write(descriptor, b".")
        await asyncio.sleep(_EVERY)
