"""Puts load on an OpenAI-style /embeddings endpoint: every client sends its next request when it has its answer."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from infinity_pool.cli.bench.connection import Connection
from infinity_pool.cli.bench.corpus import texts
from infinity_pool.cli.bench.measured import Measured
from infinity_pool.cli.bench.scenarios import Clients, Scenario

_WARM_UP = 20  # requests, or two for each client
_BEHIND = 128  # different requests of the clients behind, sent over and over
_TIMEOUT = 300.0  # s
_TOLD = 0.2  # s between two words on how far it is


@dataclass(frozen=True)
class Target:
    """A server under test: requests go to `url` + `/embeddings`."""

    url: str
    model: str
    api_key: str = field(default="", repr=False)

    def request(self, items: list[str]) -> bytes:
        """Make a whole request, from its first line to the end of its body."""
        parts = urlsplit(self.url)
        body = json.dumps({"model": self.model, "input": items}).encode()
        key = f"Authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        head = (
            f"POST {parts.path.rstrip('/')}/embeddings HTTP/1.1\r\nHost: {parts.netloc}\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True)
class Amount:
    """How much of a scenario to run: so many requests, or so many seconds."""

    requests: int
    seconds: float | None = None
    seed: int = 1


@dataclass
class Outcome:
    """What a scenario showed: of the clients it is about, and of those behind them, if there are any."""

    front: Measured
    behind: Measured | None = None


class Crowd:
    """Clients of one kind, each with a connection of its own."""

    def __init__(self, target: Target, clients: Clients, seed: int) -> None:
        self._target = target
        self._clients = clients
        self._rng = random.Random(seed)  # noqa: S311 - it draws words, not secrets
        self._connections: list[Connection | None] = [None] * clients.count

    def requests(self) -> Iterator[bytes]:
        """Make requests, all of them different, without end."""
        while True:
            yield self._target.request(texts(self._rng, self._clients.lengths, self._clients.items))

    async def send(self, requests: Iterable[bytes], measured: Measured) -> None:
        """Send requests, each client one at a time, until there are no more."""
        queue = iter(requests)
        started = time.perf_counter()
        await asyncio.gather(*(self._client(number, queue, measured) for number in range(self._clients.count)))
        measured.seconds = time.perf_counter() - started

    async def warm_up(self) -> None:
        """Open the connections and have the server run a few requests that do not count."""
        few = itertools.islice(self.requests(), max(_WARM_UP, 2 * self._clients.count))
        await self.send(few, Measured(self._clients.items))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            if connection:
                connection.close()

    async def _client(self, number: int, requests: Iterator[bytes], measured: Measured) -> None:
        for request in requests:
            started = time.perf_counter()
            try:
                async with asyncio.timeout(_TIMEOUT):
                    connection = self._connections[number] or await self._connect(number)
                    answer = await connection.send(request)
            except OSError as error:  # a TimeoutError is one too
                self._disconnect(number)
                measured.errors[type(error).__name__] += 1
                continue
            if answer.status == 200:
                measured.latencies.append(time.perf_counter() - started)
            else:
                measured.errors[f"{answer.status} {answer.start.decode(errors='replace')}"] += 1

    async def _connect(self, number: int) -> Connection:
        connection = self._connections[number] = await Connection.open(self._target.url)
        return connection

    def _disconnect(self, number: int) -> None:
        connection, self._connections[number] = self._connections[number], None
        if connection:
            connection.close()


async def run(target: Target, scenario: Scenario, amount: Amount, tell: Callable[[float], None]) -> Outcome:
    """
    Run a scenario; `tell` is called now and then with the part of it that is done.

    Raises OSError if the server cannot be reached at all.
    """
    (await Connection.open(target.url)).close()
    front = Crowd(target, scenario.clients, amount.seed)
    measured = Measured(scenario.clients.items)
    try:
        async with _behind(target, scenario.behind, amount.seed + 1) as behind:
            await front.warm_up()
            earlier = len(behind.latencies) if behind else 0
            requests, part = _prepare(front, measured, amount)
            telling = asyncio.create_task(_tell(tell, part))
            await front.send(requests, measured)
            telling.cancel()
            return Outcome(measured, behind.since(earlier, measured.seconds) if behind else None)
    finally:
        front.close()


def _prepare(front: Crowd, measured: Measured, amount: Amount) -> tuple[Iterable[bytes], Callable[[], float]]:
    """Give the requests to send, and what says which part of them is done."""
    if amount.seconds is None:
        return list(itertools.islice(front.requests(), amount.requests)), lambda: measured.answers / amount.requests
    started, seconds = time.perf_counter(), amount.seconds
    in_time = itertools.takewhile(lambda _: time.perf_counter() - started < seconds, front.requests())
    return in_time, lambda: (time.perf_counter() - started) / seconds


@asynccontextmanager
async def _behind(target: Target, clients: Clients | None, seed: int) -> AsyncIterator[Measured | None]:
    """Keep the server busy meanwhile, and give what the clients that do so measure."""
    if clients is None:
        yield None
        return
    crowd = Crowd(target, clients, seed)
    measured = Measured(clients.items)
    await crowd.warm_up()
    requests = itertools.cycle(list(itertools.islice(crowd.requests(), _BEHIND)))
    sending = asyncio.create_task(crowd.send(requests, measured))
    try:
        yield measured
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        crowd.close()


async def _tell(tell: Callable[[float], None], part: Callable[[], float]) -> None:
    while True:
        tell(part())
        await asyncio.sleep(_TOLD)
