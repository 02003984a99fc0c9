"""Puts load on an OpenAI-style /embeddings endpoint: every client sends its next request when it has its answer."""

import asyncio
import itertools
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
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
    trust: ssl.SSLContext | None = None

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
        self.clients = clients
        self._target = target
        self._rng = random.Random(seed)  # noqa: S311 - it draws words, not secrets
        self._connections: list[Connection | None] = [None] * clients.count
        self._began = [0.0] * clients.count  # when each client sent what it waits for
        self._sent = asyncio.Event()

    def requests(self) -> Iterator[bytes]:
        """Make requests, all of them different, without end."""
        while True:
            yield self._target.request(texts(self._rng, self.clients.lengths, self.clients.items))

    async def send(self, requests: Iterable[bytes], measured: Measured) -> None:
        """Send requests, each client one at a time, until there are no more."""
        queue = iter(requests)
        started = time.perf_counter()
        await asyncio.gather(*(self._client(number, queue, measured) for number in range(self.clients.count)))
        measured.seconds = time.perf_counter() - started

    async def warm_up(self) -> Measured | None:
        """Open the connections and run a few requests that do not count; give what was seen if all of them failed."""
        few = itertools.islice(self.requests(), max(_WARM_UP, 2 * self.clients.count))
        measured = Measured(self.clients.items)
        await self.send(few, measured)
        return None if measured.latencies else measured

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[Measured]:
        """Keep the server busy meanwhile, and give what is measured so far."""
        measured = Measured(self.clients.items)
        requests = itertools.cycle(list(itertools.islice(self.requests(), _BEHIND)))
        async with asyncio.TaskGroup() as group:  # what breaks there ends us too, and nobody waits for it in vain
            sending = group.create_task(self.send(requests, measured))
            yield measured
            sending.cancel()

    async def have_begun_after(self, moment: float) -> None:
        """Wait until no client waits any more for what it sent before a moment."""
        while min(self._began) < moment:
            self._sent.clear()
            await self._sent.wait()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            if connection:
                connection.close()

    async def _client(self, number: int, requests: Iterator[bytes], measured: Measured) -> None:
        for request in requests:
            started = self._began[number] = time.perf_counter()
            self._sent.set()
            try:
                async with asyncio.timeout(_TIMEOUT):
                    connection = self._connections[number] or await self._connect(number)
                    answer = await connection.send(request)
            except OSError as error:  # a TimeoutError is one too
                self._disconnect(number)
                measured.errors[type(error).__name__] += 1
                continue
            if answer.status == 200:
                measured.add(started, time.perf_counter())
            else:
                measured.errors[f"{answer.status} {answer.start.decode(errors='replace')}"] += 1

    async def _connect(self, number: int) -> Connection:
        connection = self._connections[number] = await Connection.open(self._target.url, self._target.trust)
        return connection

    def _disconnect(self, number: int) -> None:
        connection, self._connections[number] = self._connections[number], None
        if connection:
            connection.close()


async def run(target: Target, scenario: Scenario, amount: Amount, tell: Callable[[float], None]) -> Outcome:
    """
    Run a scenario; `tell` is called now and then with the part of it that is done.

    Where a whole warm-up fails, its errors are the outcome: a server that only refuses is not kept busy with that.
    Raises OSError if the server cannot be reached at all.
    """
    (await Connection.open(target.url, target.trust)).close()
    with closing(Crowd(target, scenario.clients, amount.seed)) as front:
        if scenario.behind is None:
            return Outcome(await front.warm_up() or await _measure(front, amount, tell))
        with closing(Crowd(target, scenario.behind, amount.seed + 1)) as behind:
            return await _measure_both(front, behind, amount, tell)


async def _measure_both(front: Crowd, behind: Crowd, amount: Amount, tell: Callable[[float], None]) -> Outcome:
    """Measure clients and those that keep the server busy behind them, over the same time."""
    if failed := await behind.warm_up():
        return Outcome(Measured(front.clients.items), failed)
    async with behind.busy() as meanwhile:
        if failed := await front.warm_up():
            return Outcome(failed, Measured(behind.clients.items))
        measured = await _measure(front, amount, tell)
        until = time.perf_counter()
        await behind.have_begun_after(until)  # still busy, so that what spans the end is not hurried
    return Outcome(measured, meanwhile.within(until - measured.seconds, until))


async def _measure(crowd: Crowd, amount: Amount, tell: Callable[[float], None]) -> Measured:
    measured = Measured(crowd.clients.items)
    requests, part = _prepare(crowd, measured, amount)
    telling = asyncio.create_task(_tell(tell, part))
    try:
        await crowd.send(requests, measured)
    finally:
        telling.cancel()
    return measured


def _prepare(crowd: Crowd, measured: Measured, amount: Amount) -> tuple[Iterable[bytes], Callable[[], float]]:
    """Give the requests to send, and what says which part of them is done."""
    if amount.seconds is None:
        return list(itertools.islice(crowd.requests(), amount.requests)), lambda: measured.answers / amount.requests
    started, seconds = time.perf_counter(), amount.seconds
    in_time = itertools.takewhile(lambda _: time.perf_counter() - started < seconds, crowd.requests())
    return in_time, lambda: (time.perf_counter() - started) / seconds


async def _tell(tell: Callable[[float], None], part: Callable[[], float]) -> None:
    while True:
        tell(part())
        await asyncio.sleep(_TOLD)
