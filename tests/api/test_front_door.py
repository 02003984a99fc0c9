"""What happens to requests on their way, with a worker that answers when the test says so."""

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import pytest

from infinity_pool.broker.errors import DeadLettered, InfinityError, InvalidInput, Overloaded, Unavailable, WorkerFailed
from tests.api.conftest import Api, Held, raw, until


async def post(http: aiohttp.ClientSession, held: Held, items: int = 1, **headers: str) -> tuple[int, str]:
    body = json.dumps({"model": held.model, "input": ["a"] * items})
    async with http.post(
        "/v1/embeddings", data=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
    ) as r:
        return r.status, await r.text()


@pytest.mark.parametrize(
    ("items", "headers", "lane"),
    [
        (1, {}, "online"),
        (8, {}, "online"),
        (9, {}, "bulk"),
        (1, {"X_Infinity_Lane": "bulk"}, "bulk"),
        (9, {"x_infinity_lane": "online"}, "online"),
    ],
)
async def test_lanes(items: int, headers: dict[str, str], lane: str, http: aiohttp.ClientSession, held: Held) -> None:
    asked = asyncio.create_task(post(http, held, items, **headers))
    await until(lambda: _waits(held, lane, items))

    delivery = await held.take("online" if lane == "online" else "bulk")
    await held.answer(delivery)

    assert (await asked)[0] == 200
    assert await held.waiting() == {"online": 0, "bulk": 0}


@pytest.mark.parametrize("lane", ["", "Online", "fast", "online, bulk"])
async def test_an_unknown_lane(lane: str, http: aiohttp.ClientSession, held: Held) -> None:
    status, answer = await post(http, held, X_Infinity_Lane=lane)

    error = json.loads(answer)["error"]
    assert (status, error["param"]) == (400, "X-Infinity-Lane")
    assert error["message"] == "X-Infinity-Lane must be online or bulk"


async def test_a_caller_who_goes_takes_the_job_along(http: aiohttp.ClientSession, held: Held, idle_api: Api) -> None:
    asked = [asyncio.create_task(post(http, held)) for _ in range(20)]
    await until(lambda: _waits(held, "online", 20))

    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)

    await until(lambda: _waits(held, "online", 0))
    await until(lambda: _counts(http, 'route="/v1/embeddings",status="499"'))
    assert not [line for line in idle_api.log if "Traceback" in line or "ERROR" in line]


async def test_a_caller_who_goes_within_the_head(http: aiohttp.ClientSession, held: Held, idle_api: Api) -> None:
    for part in (b"", b"POST", b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Le"):
        async with raw(idle_api) as (_, writer):
            writer.write(part)
            await writer.drain()

    status, _ = (await asyncio.gather(post(http, held), _answer_one(held)))[0]
    assert status == 200
    assert not [line for line in idle_api.log if "Traceback" in line or "ERROR" in line]


async def test_a_caller_who_goes_within_the_body(http: aiohttp.ClientSession, idle_api: Api) -> None:
    async with raw(idle_api) as (_, writer):
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        await until(lambda: _counts(http, "infinity_http_requests_in_flight 2.0"))

    await until(lambda: _counts(http, "infinity_http_requests_in_flight 1.0"))
    assert not [line for line in idle_api.log if "Traceback" in line or "ERROR" in line]


async def test_a_caller_who_goes_within_a_large_answer(http: aiohttp.ClientSession, held: Held, idle_api: Api) -> None:
    body = json.dumps({"model": held.model, "input": ["a"] * 8})
    async with aiohttp.ClientSession(idle_api.url) as other:
        headers = {"Content-Type": "application/json"}
        asked = asyncio.create_task(other.post("/v1/embeddings", data=body, headers=headers).__aenter__())
        await held.answer(await held.take(), width=500_000)
        response = await asked
        assert response.status == 200
        assert (await response.content.readexactly(100)).startswith(b'{"object":"list","data":[{"object":"embedding"')
        response.close()

    status, _ = (await asyncio.gather(post(http, held), _answer_one(held)))[0]
    assert status == 200
    assert not [line for line in idle_api.log if "Traceback" in line or "ERROR" in line]


async def test_a_request_that_takes_too_long(start_api: Callable[..., Api], held: Held) -> None:
    api = start_api("--timeout", "0.4", "--max-timeout", "0.5")
    async with aiohttp.ClientSession(api.url, headers={"Content-Type": "application/json"}) as http:
        for items in (1, 9):
            status, answer = await post(http, held, items)
            assert (status, json.loads(answer)["error"]["code"]) == (504, "deadline_exceeded")
    assert (await held.waiting())["online"] == 0


async def test_a_body_that_takes_too_long(start_api: Callable[..., Api]) -> None:
    api = start_api("--timeout", "0.4")
    async with raw(api) as (reader, writer):
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{")
        assert b" 504 " in await asyncio.wait_for(reader.readline(), 10)


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (InvalidInput("bad", param="input"), 400, {}),
        (Overloaded("full"), 429, {"Retry-After": "1", "retry-after-ms": "1000"}),
        (Unavailable("gone", retry_after=1.25), 503, {"Retry-After": "2", "retry-after-ms": "1250"}),
        (WorkerFailed("broke"), 500, {}),
        (DeadLettered("broke thrice"), 500, {"x-should-retry": "false"}),
        (InfinityError("ours"), 500, {}),
    ],
)
async def test_a_workers_errors(
    error: InfinityError, status: int, headers: dict[str, str], http: aiohttp.ClientSession, held: Held
) -> None:
    body = json.dumps({"model": held.model, "input": "a"})
    asked = asyncio.create_task(http.post("/v1/embeddings", data=body).__aenter__())
    await held.refuse(await held.take(), error)
    response = await asked
    answer = (await response.json())["error"]

    assert (response.status, answer["code"], answer["param"]) == (status, error.code, error.param)
    assert headers.items() <= dict(response.headers).items()


@pytest.mark.parametrize(
    ("path", "body", "ours", "theirs"),
    [
        ("/v2/embed", {"texts": ["a"], "output_dimension": 3}, "dimensions", "output_dimension"),
        ("/v1/embed", {"texts": ["a"], "embedding_types": ["int8"]}, "embedding_dtype", "embedding_types"),
        ("/v2/embed", {"texts": ["a"], "truncate": "START"}, "truncation_side", "truncate"),
        ("/v2/embed", {"texts": ["a"], "max_tokens": 5}, "truncate_prompt_tokens", "max_tokens"),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, "truncation_side", "truncation_direction"),
        ("/v1/embeddings", {"input": "a", "normalized": True}, "normalize", "normalized"),
        ("/v1/embeddings", {"input": "a", "use_activation": False}, "normalize", "use_activation"),
        ("/v1/embeddings", {"input": "a", "embedding_type": "ubinary"}, "embedding_dtype", "embedding_type"),
        ("/v1/embeddings", {"input": "a", "normalize": True}, "normalize", "normalize"),
        ("/embed", {"inputs": "a"}, "dimensions", "dimensions"),
    ],
)
async def test_a_workers_error_names_the_field_that_was_sent(
    path: str, body: dict[str, Any], ours: str, theirs: str, http: aiohttp.ClientSession, held: Held
) -> None:
    asked = asyncio.create_task(http.post(path, json={"model": held.model} | body).__aenter__())
    await held.refuse(await held.take(), InvalidInput(f"this model takes no other {ours}", param=ours))
    answer = await (await asked).json()
    error = answer.get("error")

    assert (error if isinstance(error, dict) else answer)["param"] == theirs
    assert f"this model takes no other {theirs}" in str(answer)


async def test_a_models_worker_that_is_gone(http: aiohttp.ClientSession, held: Held) -> None:
    await until(lambda: _ready(http, held))
    await held.leave()
    await until(lambda: _unready(http, held))

    status, answer = await post(http, held)

    assert (status, json.loads(answer)["error"]["code"]) == (503, "unavailable")
    async with http.get("/ready", params={"model": held.model}) as response:
        assert response.status == 503
        assert (await response.json())["not_ready"] == {held.model: "no worker is alive"}


async def test_the_item_at_fault_is_named(http: aiohttp.ClientSession, held: Held) -> None:
    body = json.dumps({"model": held.model, "input": [str(place) for place in range(200)]})  # four jobs
    asked = asyncio.create_task(http.post("/v1/embeddings", data=body).__aenter__())
    deliveries = [await held.take("bulk") for _ in range(4)]
    last = max(deliveries, key=lambda one: int(one.job.items[0]) if one.job else -1)
    await held.refuse(last, WorkerFailed("the model failed on it", item=7))
    response = await asked
    error = (await response.json())["error"]

    assert response.status == 500
    assert error["param"] == "input[199]"
    assert error["message"] == "input[199]: the model failed on it"
    await until(lambda: _waits(held, "bulk", 0))


async def test_answers_tell_what_their_vectors_depend_on(http: aiohttp.ClientSession, held: Held, api: Api) -> None:
    async with http.post("/v1/embeddings", data=json.dumps({"model": "m", "input": "a"})) as response:
        found = response.headers["X-Infinity-Fingerprint"]
    async with http.get("/v1/models/m") as response:
        assert (await response.json())["fingerprint"] == found != ""
    asked = asyncio.create_task(
        http.post("/v1/embeddings", data=json.dumps({"model": held.model, "input": "a"})).__aenter__()
    )
    await held.answer(await held.take())
    assert "X-Infinity-Fingerprint" not in (await asked).headers  # this worker has not told any


async def test_truncation_is_told(http: aiohttp.ClientSession, held: Held) -> None:
    asked = asyncio.create_task(
        http.post("/v1/embeddings", data=json.dumps({"model": held.model, "input": "a"})).__aenter__()
    )
    await held.answer(await held.take())
    response = await asked

    assert response.headers["X-Infinity-Truncated"] == "1"
    assert (await response.json())["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


@pytest.mark.parametrize(("sent", "kept"), [("abc-123", True), ("a" * 128, True), ("a" * 129, False), ("a b", False)])
async def test_request_ids(sent: str, kept: bool, http: aiohttp.ClientSession) -> None:
    async with http.get("/health", headers={"X-Request-Id": sent}) as response:
        assert (response.headers["X-Request-Id"] == sent) == kept


async def test_made_up_request_ids_differ(http: aiohttp.ClientSession) -> None:
    seen = set()
    for path in ("/health", "/absent", "/health"):
        async with http.get(path) as response:
            seen.add(response.headers["X-Request-Id"])

    assert len(seen) == 3
    assert all(re.fullmatch(r"[0-9a-f]{12}-\d+", one) for one in seen)


async def test_health_keeps_its_shape(http: aiohttp.ClientSession) -> None:
    async with http.get("/health") as response:
        answer = await response.json()

    assert response.status == 200
    assert isinstance(answer["unix"], float)
    async with http.head("/health") as response:
        assert response.status == 200


async def test_metrics(http: aiohttp.ClientSession, held: Held) -> None:
    asked = asyncio.create_task(post(http, held, 2))
    delivery = await held.take()
    await until(lambda: _counts(http, f'infinity_queue_items{{lane="online",model="{held.model}"}} 2.0'))
    await held.answer(delivery)
    await asked

    for line in (
        f'infinity_items_total{{model="{held.model}",task="embed"}} 2.0',
        f'infinity_tokens_total{{model="{held.model}",task="embed"}} 7.0',
        f'infinity_truncated_items_total{{model="{held.model}",task="embed"}} 1.0',
        f'infinity_workers{{model="{held.model}",state="ready"}} 1.0',
        f'infinity_dead_letters{{model="{held.model}"}} 0.0',
        'infinity_http_request_duration_seconds_count{route="/v1/embeddings",status="200"}',
        "infinity_http_requests_in_flight 1.0",
    ):
        await until(partial(_counts, http, line))


async def test_models_tell_what_there_is(http: aiohttp.ClientSession, held: Held) -> None:
    await until(lambda: _ready(http, held))
    async with http.get(f"/v1/models/{held.model}") as response:
        model = await response.json()

    assert (model["object"], model["owned_by"], model["capabilities"]) == ("model", "infinity", ["embed"])
    assert model["workers"][0]["tokens_per_second"] == 1000.0
    assert model["limits"]["max_items"] == 2048
    assert model["queue"] == {lane: {"items": 0, "tokens": 0, "bytes": 0} for lane in ("online", "bulk")}


async def _answer_one(held: Held) -> None:
    await held.answer(await held.take())


async def _waits(held: Held, lane: str, items: int) -> bool:
    return (await held.waiting())[lane] == items


async def _counts(http: aiohttp.ClientSession, line: str) -> bool:
    async with http.get("/metrics") as response:
        return line in await response.text()


async def _ready(http: aiohttp.ClientSession, held: Held) -> bool:
    async with http.get(f"/v1/models/{held.model}") as response:
        return response.status == 200 and bool((await response.json())["ready"])


async def _unready(http: aiohttp.ClientSession, held: Held) -> bool:
    return not await _ready(http, held)
