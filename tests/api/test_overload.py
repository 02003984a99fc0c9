"""More than a worker bears: what is too much is refused at once, and the rest is done as fast as ever."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.api.conftest import Api, Process, until

RATE = 200  # items/s of the worker, whatever the machine
ITEMS = 4  # in a request
TEXT = "x" * 120  # 30 tokens of the dummy
StartApi = Callable[..., Api]

_numbers = itertools.count(1)


class Answer(NamedTuple):
    at: float
    seconds: float
    status: int
    items: int
    retry_after: str | None


class Load:
    """Callers of one model, and what they were answered."""

    def __init__(self, session: aiohttp.ClientSession, model: str) -> None:
        self.answers: list[Answer] = []
        self._session = session
        self._model = model

    async def ask(self, items: int = ITEMS, headers: dict[str, str] | None = None) -> Answer:
        body = json.dumps({"model": self._model, "input": [TEXT] * items})
        started = time.perf_counter()
        async with self._session.post("/v1/embeddings", data=body, headers=headers) as response:
            await response.read()
        now = time.perf_counter()
        self.answers.append(Answer(now, now - started, response.status, items, response.headers.get("Retry-After")))
        return self.answers[-1]

    async def closed(self, callers: int, seconds: float) -> None:
        """Have callers ask again as soon as they are answered."""
        end = time.perf_counter() + seconds

        async def caller() -> None:
            while time.perf_counter() < end:
                await self.ask()

        await asyncio.gather(*(caller() for _ in range(callers)))

    async def opened(
        self, requests_per_second: float, seconds: float, headers: dict[str, str] | None = None
    ) -> list["asyncio.Task[Answer]"]:
        """Ask at a rate, whatever is answered; gives those who still wait when the time is over."""
        tasks: list[asyncio.Task[Answer]] = []
        started = time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            while len(tasks) < passed * requests_per_second:
                tasks.append(asyncio.create_task(self.ask(ITEMS, headers)))
            await asyncio.sleep(0.002)
        return [task for task in tasks if not task.done()]

    def rate(self, start: float, end: float) -> float:
        """Give the items a second that were done between two moments."""
        return sum(one.items for one in self.of(200) if start <= one.at <= end) / (end - start)

    def of(self, status: int) -> list[Answer]:
        return [one for one in self.answers if one.status == status]


@pytest.fixture
async def model(queue_url: str, idle_api: Api) -> AsyncIterator[str]:
    """A model that does 200 items a second, 8 at a time."""
    name = f"steady-{next(_numbers)}"
    options = [
        "--engine",
        "dummy",
        "--model",
        f"dummy:{1 / RATE}",
        "--batch-tokens",
        "240",
        "--served-model-name",
        name,
    ]
    worker = Process("worker", *options, "--redis-url", queue_url)
    await until(lambda: _is_ready(idle_api, name))
    yield name
    await asyncio.to_thread(worker.stop)


def session(api: Api) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(api.url, headers={"Content-Type": "application/json"}, connector=connector)


async def test_five_times_the_load(idle_api: Api, model: str) -> None:
    async with session(idle_api) as http:
        usual, burst, after = (Load(http, model) for _ in range(3))
        began = time.perf_counter()
        await usual.closed(16, 2.5)
        peak = usual.rate(began + 0.5, began + 2.5)

        began = time.perf_counter()
        late = await burst.opened(5 * RATE / ITEMS, 3.0, {"X-Request-Timeout": "1"})
        over = time.perf_counter()
        while (await after.ask(1)).seconds > 0.1:
            assert time.perf_counter() - over < 1.0  # what the burst left is done within a second
        await asyncio.gather(*late)

    waits = sorted(one.seconds for one in burst.of(429))
    assert peak > 0.8 * RATE
    assert burst.rate(began + 0.5, over) >= 0.95 * peak
    assert len(burst.of(200)) + len(waits) == len(burst.answers)
    assert (waits[len(waits) // 2] < 0.01, waits[int(len(waits) * 0.99)] < 0.05) == (True, True), waits
    assert {one.retry_after for one in burst.of(429)} == {"1"}
    done = sum(one.items for load in (usual, burst, after) for one in load.of(200))
    assert await _done(idle_api, model) == done  # and nothing that was refused


async def test_retry_after_is_when_there_is_room(start_api: StartApi, model: str) -> None:
    api = start_api("--max-queue-items", "300")  # 1.5 s of work
    async with session(api) as http:
        load = Load(http, model)
        late = await load.opened(3 * RATE / ITEMS, 2.5)
        told = max(load.of(429)).retry_after
        assert told == "2"
        await asyncio.sleep(float(told))
        assert all(task.done() for task in late)
        again = await load.ask(1)

    assert (again.status, again.seconds < 0.2) == (200, True)
    assert len(load.of(200)) + len(load.of(429)) == len(load.answers)


async def test_a_queue_bounded_in_tokens(start_api: StartApi, model: str) -> None:
    api = start_api("--max-queue-tokens", "2000")
    async with session(api) as http:
        load = Load(http, model)
        await asyncio.gather(*(load.ask() for _ in range(50)))

    assert 11 <= len(load.of(200)) <= 30  # of some 150 tokens each, while some are done
    assert len(load.of(200)) + len(load.of(429)) == 50


async def _done(api: Api, name: str) -> int:
    """Give the items that the worker has run, as it says once it has none left."""
    before = -1
    while True:
        about = await _model(api, name)
        [worker] = about["workers"]
        if about["queue"]["online"]["items"] == 0 and worker["items_done"] == before:
            return before
        before = worker["items_done"]
        await asyncio.sleep(1.1)  # two heartbeats


async def _is_ready(api: Api, name: str) -> bool:
    return bool((await _model(api, name)).get("ready"))


async def _model(api: Api, name: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(api.url) as http, http.get(f"/v1/models/{name}") as response:
        model: dict[str, Any] = await response.json() if response.status == 200 else {}
        return model
