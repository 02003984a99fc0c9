"""Load without HTTP: callers of one client of the queue, in this process."""

import asyncio
import random
import time
from types import TracebackType
from typing import Self

from infinity_pool.api.errors import STATUS
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InfinityError
from tests.end_to_end.load import MOST_CHARS, WIDTH, Tally


class Direct:
    """`clients` that embed and check, each `pause` seconds after its last answer; an async context manager."""

    def __init__(self, url: str, model: str, *, clients: int, pause: float, most_items: int = 100) -> None:
        self.tally = Tally()
        self._url = url
        self._model = model
        self._clients = clients
        self._pause = pause
        self._most_items = most_items
        self._random = random.Random(clients)
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._client = await QueueClient(self._url, timeout=30).__aenter__()
        self._tasks = [asyncio.create_task(self._ask_on()) for _ in range(self._clients)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await self._client.__aexit__(kind, error, trace)

    async def _ask_on(self) -> None:
        while not self._stopping:
            texts = [
                "z" * self._random.randint(1, MOST_CHARS) for _ in range(self._random.randint(1, self._most_items))
            ]
            await self._ask(texts)
            await asyncio.sleep(self._pause * 2 * self._random.random())

    async def _ask(self, texts: list[str]) -> None:
        self.tally.sent += 1
        began = time.monotonic()
        try:
            rows = await self._client.embed(self._model, texts, timeout=30)
        except InfinityError as error:
            self.tally.refused[STATUS[error.code]] += 1
            self.tally.longest_refusal = max(self.tally.longest_refusal, time.monotonic() - began)
            self.tally.complain(f"a direct call was refused: {error}")
            return
        if rows.tolist() == [[len(text)] * WIDTH for text in texts]:
            self.tally.answered += 1
        else:
            self.tally.wrong += 1
            self.tally.complain("a direct call got a wrong answer")
        self.tally.longest = max(self.tally.longest, time.monotonic() - began)
