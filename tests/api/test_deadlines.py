"""How long a request may take, who says so, and that nothing is computed for those who no longer wait."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import openai
import pytest

from tests.api.conftest import Api, Held, Process, raw, until

JSON = {"Content-Type": "application/json"}
ITEM = 0.1  # s that an item takes of the slow worker
StartApi = Callable[..., Api]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def patient(start_api: StartApi) -> Api:
    """A replica of its own limits: 2 s by default, 8 s at most."""
    return start_api("--timeout", "2", "--max-timeout", "8")


@pytest.fixture
async def slow(queue_url: str, idle_api: Api) -> AsyncIterator[str]:
    """The name of a model that takes its time, one item a batch, and has done none."""
    name = f"slow-{next(_numbers)}"
    options = ["--model", f"dummy:{ITEM}", "--engine", "dummy", "--served-model-name", name, "--batch-tokens", "1"]
    worker = Process("worker", *options, "--redis-url", queue_url)
    await until(lambda: _is_ready(idle_api, name))
    yield name
    await asyncio.to_thread(worker.stop)


async def post(
    api: Api, model: str, headers: dict[str, str] | None = None, items: int = 1
) -> tuple[int, dict[str, Any]]:
    data = json.dumps({"model": model, "input": ["a"] * items})
    async with (
        aiohttp.ClientSession(api.url, headers={**JSON, **(headers or {})}) as session,
        session.post("/v1/embeddings", data=data) as response,
    ):
        return response.status, await response.json()


async def ttl(api: Api, held: Held, headers: dict[str, str], items: int) -> float:
    """Give the seconds that the job of a request has."""
    asked = asyncio.create_task(post(api, held.model, headers, items))
    delivery = await held.take("online" if items < 9 else "bulk")
    await held.answer(delivery)
    assert (await asked)[0] == 200
    assert delivery.job
    assert delivery.job.ttl_ms
    return delivery.job.ttl_ms / 1000


@pytest.mark.parametrize(
    ("headers", "items", "seconds"),
    [
        ({}, 1, 2),
        ({}, 9, 8),
        ({"X-Request-Timeout": "0.75"}, 1, 0.75),
        ({"X-Request-Timeout": " 750ms "}, 9, 0.75),
        ({"x-request-timeout": "5s"}, 1, 5),
        ({"X-Request-Timeout": "3600"}, 1, 8),
        ({"X-Request-Timeout": "9" * 400}, 9, 8),
        ({"X-Stainless-Read-Timeout": "1"}, 1, 1),
        ({"X-Stainless-Timeout": "1"}, 9, 1),
        ({"X-Stainless-Read-Timeout": "600.0"}, 1, 2),
        ({"X-Stainless-Read-Timeout": "None"}, 1, 2),
        ({"X-Stainless-Read-Timeout": "1", "X-Request-Timeout": "5"}, 1, 5),
    ],
)
async def test_a_jobs_time(headers: dict[str, str], items: int, seconds: float, patient: Api, held: Held) -> None:
    assert seconds - 0.5 < await ttl(patient, held, headers, items) <= seconds


@pytest.mark.parametrize("value", ["", "soon", "-1", "0", "0ms", "1m", "1e3", "nan", "inf", "1,5", "1 2", "\u0661"])
async def test_a_time_that_is_none(value: str, patient: Api, held: Held) -> None:
    status, answer = await post(patient, held.model, {"X-Request-Timeout": value})

    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, "X-Request-Timeout", "invalid_input")
    assert answer["error"]["message"] == "X-Request-Timeout must be seconds over 0, such as 2.5 or 250ms"
    assert await held.waiting() == {"online": 0, "bulk": 0}


@pytest.mark.parametrize("items", [1, 9])
async def test_an_answer_that_does_not_come(items: int, patient: Api, held: Held) -> None:
    started = time.monotonic()
    status, answer = await post(patient, held.model, {"X-Request-Timeout": "300ms"}, items)

    assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
    assert 0.3 <= time.monotonic() - started < 1.5
    await until(lambda: _is_empty(held))


async def test_the_body_is_part_of_it(patient: Api) -> None:
    async with raw(patient) as (reader, writer):
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\nX-Request-Timeout: 200ms\r\n\r\n{"
        writer.write(head)
        assert b" 504 " in await asyncio.wait_for(reader.readline(), 1.5)


async def test_a_slow_body_leaves_less_for_the_answer(patient: Api, held: Held) -> None:
    body = json.dumps({"model": held.model, "input": "a"}).encode()
    async with raw(patient) as (reader, writer):
        head = f"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:5])
        await asyncio.sleep(0.7)
        writer.write(body[5:])
        delivery = await held.take()
        await held.answer(delivery)
        assert b" 200 " in await reader.readline()
    assert delivery.job
    assert 500 < (delivery.job.ttl_ms or 0) < 1700  # of 2 s


async def test_the_expired_are_not_run(idle_api: Api, slow: str) -> None:
    answers = await asyncio.gather(*(post(idle_api, slow, {"X-Request-Timeout": "0.55"}) for _ in range(20)))

    statuses = [status for status, _ in answers]
    assert set(statuses) == {200, 504}
    assert statuses.count(200) <= 0.55 / ITEM
    assert await _done(idle_api, slow) <= statuses.count(200) + 1  # one was running when its time was over


async def test_those_who_hang_up_are_not_computed(idle_api: Api, slow: str) -> None:
    stay = [asyncio.create_task(post(idle_api, slow)) for _ in range(9)]
    await until(lambda: _has_waiting(idle_api, slow, 7))
    started = time.monotonic()
    leave = [asyncio.create_task(post(idle_api, slow)) for _ in range(21)]
    await until(lambda: _has_waiting(idle_api, slow, 23))
    for task in leave:
        task.cancel()
    answers = await asyncio.gather(*stay)

    assert [status for status, _ in answers] == [200] * 9
    assert time.monotonic() - started < 20 * ITEM
    await asyncio.gather(*leave, return_exceptions=True)
    assert await _done(idle_api, slow) == 9


async def test_openais_client_hangs_up_by_itself(idle_api: Api, slow: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{idle_api.url}/v1", api_key="x", timeout=0.55, max_retries=0) as client:
        asks = [client.embeddings.create(model=slow, input="a") for _ in range(20)]
        answers = await asyncio.gather(*asks, return_exceptions=True)

    good = [answer for answer in answers if not isinstance(answer, BaseException)]
    bad = [answer for answer in answers if isinstance(answer, BaseException)]
    assert good
    assert all(isinstance(error, (openai.APITimeoutError, openai.InternalServerError)) for error in bad)
    assert len(bad) >= 20 - 0.6 / ITEM
    assert await _done(idle_api, slow) <= len(good) + 1


async def _model(api: Api, name: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(api.url) as session, session.get(f"/v1/models/{name}") as response:
        model: dict[str, Any] = await response.json() if response.status == 200 else {}
        return model


async def _is_ready(api: Api, name: str) -> bool:
    return bool((await _model(api, name)).get("ready"))


async def _has_waiting(api: Api, name: str, items: int) -> bool:
    return bool((await _model(api, name))["queue"]["online"]["items"] >= items)


async def _done(api: Api, name: str) -> int:
    """Give how many items the worker has run in all, once it has none left and has said so."""
    await until(lambda: _is_idle(api, name))
    await asyncio.sleep(2 * ITEM + 0.6)  # were there more to come, they would be done by then, and told
    [worker] = (await _model(api, name))["workers"]
    return int(worker["items_done"])


async def _is_idle(api: Api, name: str) -> bool:
    return bool((await _model(api, name))["queue"]["online"]["items"] == 0)


async def _is_empty(held: Held) -> bool:
    return await held.waiting() == {"online": 0, "bulk": 0}
