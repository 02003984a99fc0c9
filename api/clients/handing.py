"""Documents that one thread reads for the `map` of a client that lives in the loop of another."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

from infinity_pool.broker.mapping import Document, Documents, Mapped
from infinity_pool.broker.messages import Item

_MOST = 64  # documents that are handed over at once
_QUICK = 0.01  # s that reading them may take, so that a slow source's results are not kept waiting

Results = AsyncGenerator[Mapped, None]


class Reading:
    """
    The thread's end: documents that are read as there is room for them, `most` of them being open at most.

    `error` is what the source raised, if it did; what it gave before is run all the same.
    """

    def __init__(self, documents: Iterable[Document | Item], most: int) -> None:
        self._documents = iter(documents)
        self._room = most
        self.ended = False
        self.error: Exception | None = None

    def some(self) -> list[Document | Item]:
        """Read some documents, until there is no room or it takes long."""
        read: list[Document | Item] = []
        until, most = time.monotonic() + _QUICK, min(_MOST, self._room)
        try:
            for document in itertools.islice(self._documents, most):
                read.append(document)
                if time.monotonic() > until:
                    break
            else:
                self.ended = len(read) < most
        except Exception as error:  # noqa: BLE001 - it is raised when the results of the others are given
            self.ended, self.error = True, error
        self._room -= len(read)
        return read

    def give_back(self) -> None:
        """Make room for one more."""
        self._room += 1


class Step(NamedTuple):
    """What comes next: a result, the end, or neither, and whether documents are wanted."""

    result: Mapped | None
    wants: bool
    end: bool = False


class Handed:
    """The loop's end: the source of a `map`, which `start` begins, and its results."""

    def __init__(self, start: Callable[[Documents], Results]) -> None:
        self._documents: deque[Document | Item] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._came, self._asked = asyncio.Event(), asyncio.Event()
        self._results = start(self)
        self._next: asyncio.Task[Mapped | None] | None = None

    async def __aiter__(self) -> AsyncIterator[Document | Item]:
        while True:
            while self._documents:
                yield self._documents.popleft()
            if self._error:
                raise self._error
            if self._ended:
                return
            self._asked.set()
            await self._came.wait()
            self._came.clear()

    async def step(self, documents: Sequence[Document | Item], reading: Reading) -> Step:
        """Take documents that were read, and wait until there is a result, the end, or room for more."""
        if documents or reading.ended:
            self._documents.extend(documents)
            self._ended, self._error = reading.ended, reading.error
            self._asked.clear()
            self._came.set()
        if self._next is None:
            self._next = asyncio.create_task(anext(self._results, None))
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait([self._next, asked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if not self._next.done():
            return Step(None, wants=True)
        done, self._next = self._next, None
        result = done.result()
        return Step(result, wants=self._asked.is_set(), end=result is None)

    async def close(self) -> None:
        """Take back what is open."""
        if self._next:
            self._next.cancel()
            await asyncio.wait([self._next])
        await self._results.aclose()
