"""Live is not ready: what /ready says as workers come, load, are stuck and go, and as the replica itself stops."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import InfinityError, InvalidInput, WorkerFailed
from infinity_pool.broker.presence import beat
from tests.api.conftest import PATIENCE, Api, Held, until

JSON = {"Content-Type": "application/json"}
StartApi = Callable[..., Api]


@pytest.fixture
def own_queue() -> Iterator[str]:
    """The URL of a queue that knows no model."""
    with EmbeddedServer.start() as server:
        yield server.url


@asynccontextmanager
async def joined(url: str) -> AsyncIterator[Held]:
    """Have one more worker, which waits for the test."""
    held = Held(url)
    await held.join()
    yield held
    await held.close()


async def ask(api: Api, path: str = "/ready", **query: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession(api.url) as session, session.get(path, params=query) as response:
        return response.status, await response.json()


async def embed(api: Api, model: str, **headers: str) -> int:
    data = json.dumps({"model": model, "input": "a"})
    async with (
        aiohttp.ClientSession(api.url, headers={**JSON, **headers}) as session,
        session.post("/v1/embeddings", data=data) as response,
    ):
        return response.status


async def say(held: Held, **words: Any) -> None:
    held.info = replace(held.info, **words)
    await beat(held.redis, held.info)


async def test_a_fresh_start_is_live_and_not_ready(own_queue: str, start_api: StartApi) -> None:
    api = start_api(redis_url=own_queue)

    for path in ("/ready", "/v1/ready"):
        assert await ask(api, path) == (
            503,
            {"ready": False, "reason": "no model is served yet", "models": 0, "not_ready": {}},
        )
    for path in ("/health", "/v1/health"):
        assert (await ask(api, path))[0] == 200
    async with aiohttp.ClientSession(api.url) as session:
        for path, status in (("/ready", 503), ("/v1/ready", 503), ("/health", 200), ("/v1/health", 200)):
            async with session.head(path) as response:
                assert (response.status, await response.read()) == (status, b"")


async def test_any_model_will_do_where_none_is_required(own_queue: str, start_api: StartApi) -> None:
    api = start_api(redis_url=own_queue)
    async with joined(own_queue) as stays, joined(own_queue) as goes:
        await until(lambda: _ready(api))
        await goes.leave()

        status, report = await ask(api)
        assert (status, report["models"], report["not_ready"]) == (200, 2, {goes.model: "no worker is alive"})
        assert (await ask(api, model=stays.model))[0] == 200
        assert (await ask(api, model=goes.model))[0] == 503

        await stays.leave()
        status, report = await ask(api)
        assert (status, set(report["not_ready"])) == (503, {stays.model, goes.model})


async def test_required_models_and_only_those(own_queue: str, start_api: StartApi) -> None:
    async with joined(own_queue) as other, joined(own_queue) as held:
        api = start_api("--require-model", held.model, "--require-model", "absent", redis_url=own_queue)
        status, report = await ask(api)
        assert (status, report["not_ready"]) == (503, {"absent": "no worker has ever served it"})
        assert report["reason"] == "not ready: absent"
        api.stop()

        api = start_api("--require-model", held.model, redis_url=own_queue)
        await other.leave()
        assert (await ask(api))[0] == 200
        for words, why in (
            ({"state": "loading", "stage": "warming up", "progress": 0.4}, "loading: warming up 40%"),
            ({"state": "loading", "stage": "", "progress": None}, "loading: starting"),
            ({"state": "stuck", "stalled": 61.2}, "stuck: no batch was finished for 61 s"),
            ({"state": "draining"}, "draining"),
        ):
            await say(held, **words)
            status, report = await ask(api)
            assert (status, report["not_ready"]) == (503, {held.model: why})
        await say(held, state="ready")
        assert (await ask(api))[0] == 200


async def test_a_queue_that_is_gone_is_named(start_api: StartApi) -> None:
    with EmbeddedServer.start() as server:
        api = start_api("--require-model", "m", redis_url=server.url)
    status, report = await ask(api)

    assert (status, report["reason"]) == (503, "the queue cannot be reached")
    assert report["not_ready"] == {"m": "the queue cannot be reached"}
    assert (await ask(api, "/health"))[0] == 200


async def test_deep_runs_a_job_however_many_ask(idle_api: Api, held: Held) -> None:
    await until(lambda: _ready(idle_api, model=held.model))
    asked = [asyncio.create_task(ask(idle_api, model=held.model, deep="1")) for _ in range(20)]
    await until(lambda: _waits(held, 1))
    await held.answer(await held.take())

    assert [status for status, _ in await asyncio.gather(*asked)] == [200] * 20
    assert (await held.waiting())["online"] == 0


@pytest.mark.parametrize(
    ("tasks", "task", "items"),
    [
        (["classify", "embed"], "embed", ["ready?"]),
        (["sparse"], "sparse", ["ready?"]),
        (["multivector"], "multivector", ["ready?"]),
        (["classify"], "classify", ["ready?"]),
        (["rerank"], "rerank", [["ready?", "ready?"]]),
    ],
)
async def test_deep_asks_for_what_the_model_does(
    idle_api: Api, held: Held, tasks: list[str], task: str, items: list[Any]
) -> None:
    await say(held, tasks=tasks)
    await until(lambda: _ready(idle_api, model=held.model))
    asked = asyncio.create_task(ask(idle_api, model=held.model, deep="1"))
    delivery = await held.take()
    assert delivery.job
    assert (delivery.job.task, delivery.job.items) == (task, items)
    await held.answer(delivery)
    assert (await asked)[0] == 200


async def test_deep_asks_nothing_of_a_task_that_it_does_not_know(idle_api: Api, held: Held) -> None:
    await say(held, tasks=["divine"])
    await until(lambda: _ready(idle_api, model=held.model))
    assert (await ask(idle_api, model=held.model, deep="1"))[0] == 200
    assert (await held.waiting())["online"] == 0


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidInput("images only", item=0), 200), (WorkerFailed("the model failed on it"), 503)]
)
async def test_deep_tells_a_text_refused_from_a_model_that_fails(
    idle_api: Api, held: Held, error: InfinityError, status: int
) -> None:
    await until(lambda: _ready(idle_api, model=held.model))
    asked = asyncio.create_task(ask(idle_api, model=held.model, deep="1"))
    await held.refuse(await held.take(), error)
    assert (await asked)[0] == status


async def test_deep_finds_what_a_heartbeat_does_not_tell(idle_api: Api, held: Held) -> None:
    asked = asyncio.create_task(ask(idle_api, model=held.model, deep="1"))
    delivery = await held.take()  # and nothing comes of it
    status, report = await asked

    assert status == 503
    assert report["not_ready"][held.model] == f"it failed at a job: {held.model} gave no answer within 5 s"
    assert (await ask(idle_api, model=held.model))[0] == 200
    await held.answer(delivery)


async def test_sigterm_makes_it_unready_first(start_api: StartApi, held: Held) -> None:
    api = start_api("--shutdown-delay", "1.5")
    await until(lambda: _ready(api, model=held.model))
    api.process.send_signal(signal.SIGTERM)

    await until(lambda: _stopping(api))
    assert (await ask(api, "/health"))[0] == 200
    asked = asyncio.create_task(embed(api, held.model))  # a request that comes late all the same
    await held.answer(await held.take())
    assert await asked == 200
    assert await asyncio.to_thread(api.process.wait, PATIENCE) == 0


async def test_a_second_signal_does_not_wait_for_the_delay(start_api: StartApi) -> None:
    api = start_api("--shutdown-delay", "60")
    api.process.send_signal(signal.SIGTERM)
    await until(lambda: _stopping(api))
    api.process.send_signal(signal.SIGTERM)

    await asyncio.to_thread(api.process.wait, 5)


async def test_what_cannot_be_finished_in_time_is_told(start_api: StartApi, held: Held) -> None:
    api = start_api("--timeout", "0.5")
    asked = asyncio.create_task(embed(api, held.model, **{"X-Request-Timeout": "30"}))
    delivery = await held.take()
    api.process.send_signal(signal.SIGTERM)

    assert await asked == 503
    assert await asyncio.to_thread(api.process.wait, PATIENCE) == 0
    await held.answer(delivery)


async def _ready(api: Api, **query: str) -> bool:
    return (await ask(api, **query))[0] == 200


async def _stopping(api: Api) -> bool:
    _, report = await ask(api)
    return bool(report["reason"] == "this replica is stopping")


async def _waits(held: Held, items: int) -> bool:
    return (await held.waiting())["online"] == items
