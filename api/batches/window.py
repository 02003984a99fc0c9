"""Lines that are being answered, in their order: as many as the memory for their answers allows."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from infinity_pool.api.batches.answering import Answered
from infinity_pool.api.batches.storage import Line
from infinity_pool.broker.connection import end

_MOST_LINES = 256
_MOST_BYTES = 64 * 2**20  # of answers
_USUAL = 50.0  # bytes of an answer for one of its line, before any is known


class Window:
    """
    Lines between their being read and their being written.

    An answer may be a thousand times its line, so what is open is bounded by the largest ratio seen.
    """

    def __init__(self, answer: Callable[[bytes], Awaitable[Answered]]) -> None:
        self._answer = answer
        self._open: deque[tuple[Line, asyncio.Task[Answered]]] = deque()
        self._bytes = 0
        self._ratio = _USUAL

    def __len__(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        """Whether the first must be taken before another is added."""
        return len(self) >= _MOST_LINES or self._bytes * self._ratio > _MOST_BYTES

    def add(self, line: Line) -> None:
        """Have a line answered."""
        task = asyncio.create_task(self._run(line), name="infinity batch line")
        self._open.append((line, task))
        self._bytes += len(line.data)

    async def wait(self, seconds: float) -> bool:
        """Wait for the first to be answered, or left; gives whether it is."""
        first = self._open[0][1]
        await asyncio.wait([first], timeout=seconds)
        return first.done()

    def take(self) -> tuple[Line, Answered | None]:
        """Take the first, which is done; no answer if it was left. Raises what answering it raised."""
        line, task = self._open.popleft()
        self._bytes -= len(line.data)
        return line, None if task.cancelled() else task.result()

    def leave(self) -> None:
        """Let go of all that is not answered."""
        for _, task in self._open:
            task.cancel()

    async def close(self) -> None:
        """Let go of all."""
        self.leave()
        for _, task in self._open:
            await end(task)

    async def _run(self, line: Line) -> Answered:
        answered = await self._answer(line.data)
        self._ratio = max(self._ratio, len(answered.data) / max(1, len(line.data)))
        return answered
