"""The real thing: a queue, `infinity-worker` with the dummy engine, and `infinity-api`, started as a user does."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from infinity_pool.broker import keys
from infinity_pool.broker.connection import connect
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import InfinityError
from infinity_pool.broker.messages import Failure, Lane, Result
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker
from tests.api.browser import Tab, browser_tab

PATIENCE = 30.0  # s, for a process to start or stop on a busy machine
KEY = "sesame-\N{SNOWMAN}-key"
WIDTH = 13  # of the dummy engine's vectors

_numbers = itertools.count(1)


class Process:
    """A console script that runs; its log is read as it comes."""

    def __init__(self, module: str, *options: str) -> None:
        self.log: list[str] = []
        self._news = threading.Condition()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("INFINITY_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"infinity_pool.cli.{module}", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                with self._news:
                    self.log.append(line)
                    self._news.notify_all()
        with self._news:
            self.log.append("<ended>")
            self._news.notify_all()

    def expect(self, text: str) -> str:
        """Wait for a line of the log that has `text` in it, and give it."""
        with self._news:
            assert self._news.wait_for(lambda: self._find(text) or self._find("<ended>"), PATIENCE), self.log
            assert self._find(text), "".join(self.log)
            return self._find(text)

    def _find(self, text: str) -> str:
        return next((line for line in self.log if text in line), "")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, wait until it has, and give its exit code."""
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self._reader.join()
        return code


class Api(Process):
    """An API replica on a port of its own."""

    def __init__(self, redis_url: str, *options: str) -> None:
        super().__init__("api", "--port", "0", "--redis-url", redis_url, *options)
        self.url = self.expect("listening on").split()[-1]


class Held:
    """A worker on the real consumer that does nothing until the test says so, so that jobs wait as long as it likes."""

    def __init__(self, url: str, tasks: Sequence[str] = ("embed",)) -> None:
        self.model = f"held-{next(_numbers)}"
        self.redis = connect(url)
        self.consumer = Consumer(url, self.model, "w")
        self.info = WorkerInfo(id="w", model=self.model, state="ready", tasks=[*tasks], tokens_per_second=1000.0)

    async def join(self) -> None:
        await self.consumer.join()
        await beat(self.redis, self.info)
        self._gone = asyncio.Event()
        self._leaving = asyncio.create_task(self._gone.wait())
        self._alive = asyncio.create_task(self._live())

    async def _live(self) -> None:
        while not self._gone.is_set():
            await beat(self.redis, self.info)
            await asyncio.wait([self._leaving], timeout=0.5)

    async def leave(self) -> None:
        """Be gone at once, as a worker that its supervisor saw die."""
        self._gone.set()  # no cancelling: redis-py may swallow it
        await asyncio.gather(self._alive, self._leaving)
        await forget_worker(self.redis, self.model, self.info.id)

    async def close(self) -> None:
        """Leave no trace, so that other tests do not see a model without workers."""
        await self.leave()
        await self.consumer.close()
        await self.redis.zrem(keys.models(), self.model)
        await self.redis.aclose()

    async def take(self, lane: Lane = "online") -> Delivery:
        while True:
            if taken := await self.consumer.take(lane, 1):
                return taken[0]

    async def answer(self, delivery: Delivery, width: int = 3) -> None:
        assert delivery.job
        rows = np.ones((len(delivery.job.items), width), np.float32)
        await self.consumer.answer([(delivery, Result(delivery.job.id, rows, 7, 1))])

    async def refuse(self, delivery: Delivery, error: InfinityError) -> None:
        assert delivery.job
        await self.consumer.answer([(delivery, Failure(delivery.job.id, error))])

    async def waiting(self) -> dict[str, int]:
        """Count the items that wait or are in hand, by lane."""
        counts = await self.redis.hgetall(keys.waiting(self.model))
        return {lane: int(counts.get(f"{lane}:items".encode(), 0)) for lane in ("online", "bulk")}


@pytest.fixture(scope="session")
def queue_url() -> Iterator[str]:
    """The URL of a server that keeps what it has between tests."""
    with EmbeddedServer.start() as server:
        yield server.url


@pytest.fixture(scope="session")
def start_api(queue_url: str) -> Iterator[Callable[..., Api]]:
    """Start one more replica, with options."""
    started: list[Api] = []

    def start(*options: str, redis_url: str = queue_url) -> Api:
        started.append(Api(redis_url, *options))
        return started[-1]

    yield start
    for api in started:
        if api.process.poll() is None:
            api.stop()


@pytest.fixture(scope="session")
def worker(queue_url: str) -> Iterator[Process]:
    """A real worker of model `m`, without a network to run."""
    options = ["--engine", "dummy", "--model", "dummy", "--served-model-name", "m", "--redis-url", queue_url]
    worker = Process("worker", *options)
    yield worker
    worker.stop()


@pytest.fixture(scope="session")
def idle_api(start_api: Callable[..., Api]) -> Api:
    """A replica, whatever workers there are."""
    return start_api("--max-body", "4000000", "--strict-model-names", "--files", "memory://files")


@pytest.fixture(scope="session")
def guarded(start_api: Callable[..., Api]) -> Api:
    """A replica that asks for a key."""
    return start_api("--api-key", KEY)


@pytest.fixture(scope="session")
def api(idle_api: Api, worker: Process) -> Api:
    """A replica that has a worker of model `m` to send work to."""
    asyncio.run(_until_ready(idle_api.url, "m"))
    return idle_api


@pytest.fixture
async def http(idle_api: Api) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the shared replica."""
    async with aiohttp.ClientSession(idle_api.url, headers={"Content-Type": "application/json"}) as session:
        yield session


@pytest.fixture
async def held(queue_url: str) -> AsyncIterator[Held]:
    """A worker that waits for the test."""
    worker = Held(queue_url)
    await worker.join()
    yield worker
    await worker.close()


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    """A page in a browser."""
    async with browser_tab(tmp_path) as tab:
        yield tab


@asynccontextmanager
async def raw(api: Api) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a plain connection, to say what no HTTP client would."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Look until an async condition is true."""
    async with asyncio.timeout(patience):
        while not await condition():
            await asyncio.sleep(0.02)


async def _until_ready(url: str, model: str, patience: float = PATIENCE) -> None:
    """Wait until a model takes jobs."""
    async with aiohttp.ClientSession(url) as session:

        async def ready() -> bool:
            async with session.get(f"/v1/models/{model}") as response:
                found = await response.json()
                return response.status == 200 and found["id"] == model and bool(found["ready"])

        await until(ready, patience)
