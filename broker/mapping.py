"""Puts any number of documents through a model, a bounded part of them at a time: what `map` of a client does."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from infinity_pool.broker.chunks import Chunks, Submit, Work
from infinity_pool.broker.connection import end
from infinity_pool.broker.errors import InfinityError, InvalidInput
from infinity_pool.broker.messages import Item
from infinity_pool.broker.splitting import JOB_ITEMS

MAX_IN_FLIGHT = 2048

_MOST_CHARS = 64 * 2**20  # of the documents that are open, however few they are


class Document(NamedTuple):
    """An item with an id of the caller's; in place of an item, an error is handed through as its result."""

    id: Any
    item: Item


@dataclass(frozen=True, slots=True)
class Mapped:
    """
    What became of one document: its output, or the error of it alone.

    `index` is its place among the documents, from 0, and `id` what it came with. `tokens` is its share of those that
    its job ran, 0 where an equal document was computed for it.
    """

    index: int
    id: Any
    output: Any = None
    error: InfinityError | None = None
    tokens: int = 0


Documents = Iterable[Document | Item] | AsyncIterable[Document | Item]


def check_documents(documents: Documents) -> None:
    """Refuse one document in place of several, whose letters or parts would be taken for them."""
    if isinstance(documents, str | bytes | Document):
        raise InvalidInput("documents are several: put a single one in a list", param="documents")


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A document that is open."""

    index: int
    id: Any
    work: Work["_Place"]


class Mapper:
    """
    One run of documents through `submit`; iterate `results` once, and close it.

    At most `max_in_flight` documents have been read and not been given back. Where `waits`, what passes (an outage, a
    queue that is full) is waited out, however long it takes.
    """

    def __init__(self, submit: Submit, *, max_in_flight: int = MAX_IN_FLIGHT, ordered: bool = True, waits: bool = True):
        if max_in_flight < 1:
            raise InvalidInput(f"max_in_flight must be over 0, not {max_in_flight}", param="max_in_flight")
        size = max(1, min(JOB_ITEMS, max_in_flight // 4))
        self._chunks = Chunks(submit, size, self._settle, self._start, waits=waits)
        self._most = max_in_flight
        self._ordered = ordered
        self._works: dict[Hashable, Work[_Place]] = {}
        self._line: deque[_Place] = deque()  # in the order in which they are given back
        self._open = self._chars = 0
        self._read = False  # whether all documents were
        self._broken: BaseException | None = None
        self._source_error: Exception | None = None
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def results(self, documents: Documents) -> AsyncGenerator[Mapped, None]:
        """
        Give what becomes of each; raises what concerns them all, such as ModelNotFound.

        An error of the source is raised when the results of all that it gave have been given.
        """
        self._start(self._feed(documents))
        try:
            while await self._some():
                place = self._line.popleft()
                yield _mapped(place)
                self._give_back(place)
        finally:
            self._chunks.close()
            for task in list(self._tasks):
                task.cancel()
            for task in list(self._tasks):
                await end(task)

    async def _some(self) -> bool:
        """Wait for the next that can be given back; false if there is none left."""
        while not (self._line and self._line[0].work.done):
            if self._broken:
                raise self._broken
            if self._read and not self._open:
                if self._source_error:
                    raise self._source_error
                return False
            self._news.clear()
            await self._news.wait()
        return True

    def _give_back(self, place: _Place) -> None:
        work = place.work
        work.users.remove(place)
        work.tokens = 0  # they are counted once
        self._open -= 1
        if not work.users:
            self._chars -= work.size
            self._works.pop(work.key, None)
        self._room.set()

    async def _feed(self, documents: Documents) -> None:
        try:
            await self._read_all(documents)
        except Exception as error:  # noqa: BLE001 - it is raised when nothing is open any more
            self._source_error = error
        self._chunks.launch()
        self._read = True
        self._news.set()

    async def _read_all(self, documents: Documents) -> None:
        index = 0
        async for document in _each(documents):
            self._add(index, *(document if isinstance(document, Document) else (None, document)))
            index += 1
            if self._chunks.empty:
                await asyncio.sleep(0)  # a source that never waits would let nobody else run
            while self._open and (self._open >= self._most or self._chars >= _MOST_CHARS):
                self._room.clear()
                await self._room.wait()

    def _add(self, index: int, id: Any, item: Item) -> None:
        key = _key(item)
        work = self._works.get(key)
        new = work is None
        if work is None:
            work = self._works[key] = Work(item, key)
            self._chars += work.size
        place = _Place(index, id, work)
        work.users.append(place)
        self._open += 1
        if self._ordered or work.done:
            self._line.append(place)
        if isinstance(item, InfinityError):
            self._settle(work, item)
        elif new:
            self._chunks.put(work)
        elif work.done:
            self._news.set()

    def _settle(self, work: Work[_Place], output: Any, tokens: int = 0) -> None:
        work.output, work.tokens, work.done = output, tokens, True
        work.item = None
        if not self._ordered:
            self._line.extend(work.users)
        self._news.set()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, name="infinity map")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._broken = self._broken or error
            self._news.set()


def _mapped(place: _Place) -> Mapped:
    output, failed = place.work.output, isinstance(place.work.output, InfinityError)
    return Mapped(place.index, place.id, None if failed else output, output if failed else None, place.work.tokens)


def _key(item: Item) -> Hashable:
    """Give what equal items have in common; an item that cannot be compared is equal to none."""
    if isinstance(item, str | bytes):
        return item
    if isinstance(item, list | tuple) and all(isinstance(part, str) for part in item):
        return tuple(item)
    return object()


async def _each(documents: Documents) -> AsyncIterator[Document | Item]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
