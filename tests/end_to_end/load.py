"""Steady load with known right answers, and an account of what became of every request."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

WIDTH = 13  # of the dummy engine's vectors, each number of which is the text's length
MOST_CHARS = 1500

_PAUSE_AFTER_REFUSAL = 0.05  # s
_MOST_COMPLAINTS = 50


@dataclass
class Tally:
    """
    What became of the requests sent: each is counted once beside `sent`.

    `refused` is by HTTP status. `lost` had no answer within the client's patience, `broken` had their connection
    broken, `cut` too but by the death of an API that was killed; `wrong` had an answer that was not theirs, `doubled`
    one that had been given before. Times are in seconds.
    """

    sent: int = 0
    answered: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    broken: int = 0
    cut: int = 0
    wrong: int = 0
    doubled: int = 0
    longest: float = 0.0
    longest_refusal: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def flawless(self) -> bool:
        """Whether every request was answered, rightly."""
        return self.answered == self.sent > 0

    def complain(self, text: str) -> None:
        """Remember what was wrong, the first of it at least, and when."""
        if len(self.complaints) < _MOST_COMPLAINTS:
            self.complaints.append(f"{time.strftime('%H:%M:%S')} {text}")

    def add(self, other: "Tally") -> None:
        """Count another's requests too."""
        for name in ("sent", "answered", "refused", "lost", "broken", "cut", "wrong", "doubled", "complaints"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.longest_refusal = max(self.longest_refusal, other.longest_refusal)


class Load:
    """
    `clients` that ask, check and ask again, each `pause` seconds after its last answer; an async context manager.

    `urls` gives the API replicas that may be asked now. Every request has an id, which its answer must carry, and
    texts of random length, which the answer's numbers must be; with `new_connections`, also a connection of its own.
    """

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        model: str,
        *,
        clients: int = 12,
        pause: float = 0.02,
        patience: float = 30.0,
        most_items: int = 4,
        new_connections: bool = False,
        was_killed: Callable[[str], bool] = lambda url: False,
        seed: int = 0,
    ) -> None:
        self.tally = Tally()
        self._urls = urls
        self._model = model
        self._clients = clients
        self._pause = pause
        self._patience = patience
        self._most_items = most_items
        self._new_connections = new_connections
        self._was_killed = was_killed
        self._answered: set[str] = set()
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._patience)
        connector = aiohttp.TCPConnector(limit=0, force_close=self._new_connections)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self._clients)]
        await self.more(self._clients)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        await self._session.close()

    def lap(self) -> Tally:
        """Give the account since the last lap; requests under way will be in the next."""
        tally, self.tally = self.tally, Tally()
        self.tally.sent = tally.sent - _settled(tally)
        tally.sent = _settled(tally)
        return tally

    async def more(self, answers: int, patience: float = 20.0) -> float:
        """Wait until so many more requests are answered; gives the seconds it took."""
        tally, began = self.tally, time.monotonic()
        goal = tally.answered + answers
        while tally.answered < goal:
            assert time.monotonic() - began < patience, f"no {answers} answers in {patience:g} s: {tally}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def _client(self) -> None:
        while not self._stopping.is_set():
            if urls := self._urls():
                await self._ask(self._random.choice(urls))
            await asyncio.sleep(self._pause * 2 * self._random.random())

    async def _ask(self, url: str) -> None:
        texts = ["x" * self._random.randint(1, MOST_CHARS) for _ in range(self._random.randint(1, self._most_items))]
        request_id = f"load-{next(self._numbers)}"
        self.tally.sent += 1
        began = time.monotonic()
        try:
            status, body = await self._post(url, texts, request_id)
        except TimeoutError:
            self.tally.lost += 1
            self.tally.complain(f"{request_id} lost after {self._patience:g} s at {url}")
        except aiohttp.ClientError as error:
            self._break(request_id, url, f"after {time.monotonic() - began:.2f} s: {error!r}")
        else:
            self._account(texts, request_id, status, body, time.monotonic() - began)
            if status != 200:
                await asyncio.sleep(_PAUSE_AFTER_REFUSAL)

    def _break(self, request_id: str, url: str, how: str) -> None:
        if self._was_killed(url):
            self.tally.cut += 1
            return
        self.tally.broken += 1
        self.tally.complain(f"{request_id} broken at {url} {how}")

    async def _post(self, url: str, texts: list[str], request_id: str) -> tuple[int, Any]:
        body = {"model": self._model, "input": texts}
        headers = {"X-Request-Id": request_id}
        async with self._session.post(f"{url}/v1/embeddings", json=body, headers=headers) as response:
            answer = await response.json()
            answer["request_id"] = response.headers["X-Request-Id"]
            return response.status, answer

    def _account(self, texts: list[str], request_id: str, status: int, body: Any, took: float) -> None:
        tally = self.tally
        tally.longest = max(tally.longest, took)
        if body["request_id"] != request_id:
            again = body["request_id"] in self._answered
            tally.doubled += again
            tally.wrong += not again
            tally.complain(f"{request_id} got the answer of {body['request_id']}")
        elif status != 200:
            tally.refused[status] += 1
            tally.longest_refusal = max(tally.longest_refusal, took)
            tally.complain(f"{request_id} refused after {took:.2f} s: {status} {body['error']['message']}")
        elif not is_right(texts, body):
            tally.wrong += 1
            tally.complain(f"{request_id} got a wrong answer to texts of {[len(text) for text in texts]} characters")
        else:
            tally.answered += 1
            self._answered.add(request_id)


def is_right(texts: Sequence[str], body: Any) -> bool:
    """Say whether an answer of the dummy engine is that of these texts, in their order."""
    rows = [row["embedding"] for row in body["data"]]
    return bool(rows == [[len(text)] * WIDTH for text in texts])


def _settled(tally: Tally) -> int:
    unanswered = tally.lost + tally.broken + tally.cut
    return tally.answered + sum(tally.refused.values()) + unanswered + tally.wrong + tally.doubled


async def embed(
    url: str,
    texts: Sequence[str],
    model: str = "m",
    *,
    timeout: float = 30.0,
    headers: Mapping[str, str] | None = None,
) -> int:
    """Embed once; gives the status, and fails on an answer that is wrong."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
        session.post(f"{url}/v1/embeddings", json={"model": model, "input": texts}, headers=headers) as response,
    ):
        if response.status == 200:
            assert is_right(texts, await response.json())
        return response.status


async def at_once(*calls: Coroutine[Any, Any, int]) -> Counter[int]:
    """Make several calls side by side and count their statuses."""
    return Counter(await asyncio.gather(*calls))
