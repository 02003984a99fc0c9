"""Many keys, on two replicas that share a queue of their own: what each may do, and how much."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from redis.asyncio import Redis

from infinity_pool.api.access.keyring import Keyring
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker import keyring, keys
from infinity_pool.broker.callers import Caller, digest, new_secret
from infinity_pool.broker.connection import command, connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.limiting import Limiter
from tests.api.conformity import check
from tests.api.conftest import Api, Held, Process, until

CALLERS = (
    Caller(name="root", admin=True),
    Caller(name="plain"),
    Caller(name="reranks", tasks=("rerank",)),
    Caller(name="models", models=("m", "absent")),
    Caller(name="elsewhere", models=("other",)),
    Caller(name="bulk", lanes=("bulk",)),
    Caller(name="online", lanes=("online",)),
    Caller(name="leaver"),
    Caller(name="few", requests_per_minute=6),
    Caller(name="patient", requests_per_minute=60),
    Caller(name="frugal", tokens_per_day=10),
    Caller(name="holder", concurrent_items=2),
    Caller(name="counted"),
)


class Pair:
    """Two replicas, and what they share."""

    def __init__(self, url: str, file: Path) -> None:
        self.queue_url, self.file = url, file
        self.keys = asyncio.run(_add_all(url))
        self.secrets = [*self.keys.values()]  # all that there ever were
        options = ["--engine", "dummy", "--model", "dummy", "--served-model-name", "m", "--redis-url", url]
        self.worker = Process("worker", *options)
        self.replicas = [Api(url, "--api-key-file", str(file), "--no-metrics-by-key"), Api(url)]

    def stop(self) -> None:
        for process in (*self.replicas, self.worker):
            process.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    file = tmp_path_factory.mktemp("keys") / "keys.jsonl"
    file.write_text("\n")
    with EmbeddedServer.start() as server:
        pair = Pair(server.url, file)
        asyncio.run(_until_ready(pair))
        yield pair
        pair.stop()


async def _add_all(url: str) -> dict[str, str]:
    async with connect(url) as redis:
        return {one.name: await keyring.add(redis, one, "someone@somewhere") for one in CALLERS}


async def _until_ready(pair: Pair) -> None:
    for replica in pair.replicas:
        await until(partial(_status, replica.url, pair.keys["counted"]))


async def _status(url: str, key: str) -> bool:
    async with aiohttp.ClientSession(url) as http, http.get("/models/m", headers=_bearer(key)) as response:
        return response.status == 200 and bool((await response.json())["ready"])


@pytest.fixture
async def redis(pair: Pair) -> AsyncIterator[Redis]:
    async with connect(pair.queue_url) as redis:
        yield redis


async def _known(url: str, key: str) -> bool:
    async with aiohttp.ClientSession(url) as http, http.get("/models", headers=_bearer(key)) as response:
        return response.status == 200


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def ask(
    replica: Api, key: str, path: str = "/embeddings", headers: Mapping[str, str] | None = None, **changed: Any
) -> tuple[int, Any, Mapping[str, str]]:
    body = {"model": "m", "input": "four"} | changed
    async with (
        aiohttp.ClientSession(replica.url, headers=_bearer(key) | dict(headers or {})) as http,
        http.post(path, json=body) as response,
    ):
        answer = await response.json()
        check(path, response.status, answer)
        return response.status, answer, response.headers


async def test_once_a_key_is_known_all_need_one(pair: Pair) -> None:
    key = pair.keys["plain"]
    for replica in pair.replicas:
        async with aiohttp.ClientSession(replica.url) as http, http.get("/models") as response:
            assert response.status == 401
        for wrong in ("ip-wrong", key + "x", digest(key), "", "plain"):
            assert (await ask(replica, wrong))[0] == 401
        status, _, headers = await ask(replica, key)
        assert status == 200
        assert not [name for name in headers if name.lower().startswith("x-ratelimit")]


async def test_a_key_is_for_some_models_tasks_and_lanes(pair: Pair) -> None:
    replica = pair.replicas[0]
    assert (await ask(replica, pair.keys["reranks"]))[0] == 403
    assert (await ask(replica, pair.keys["models"]))[0] == 200
    elsewhere = pair.keys["elsewhere"]
    for model in ("m", "no-such"):  # it is not told which of them there is
        status, answer, _ = await ask(replica, elsewhere, model=model)
        told = answer["error"]
        assert (status, told["type"], told["code"], told["param"]) == (403, "permission_error", "forbidden", "model")
    status, answer, _ = await ask(replica, elsewhere, model="other")
    assert status == 404
    assert "'m'" not in answer["error"]["message"]
    assert not answer["error"]["message"].endswith("m")
    bulk = pair.keys["bulk"]
    assert (await ask(replica, bulk))[0] == 403
    assert (await ask(replica, bulk, headers={"X-Infinity-Lane": "bulk"}))[0] == 200


async def test_a_key_without_the_bulk_lane_is_told_of_large_requests(pair: Pair) -> None:
    replica, online = pair.replicas[0], pair.keys["online"]
    told = "this key is not for the bulk lane, only online: name that in the request"

    assert (await ask(replica, online, input=["four"] * 8))[0] == 200
    status, answer, _ = await ask(replica, online, input=["four"] * 9)
    assert (status, answer["error"]["message"]) == (403, told)
    status, answer, _ = await ask(replica, online, "/tokenize", inputs=["four"] * 9)
    assert (status, answer["error"]) == (403, told)
    assert (await ask(replica, online, input=["four"] * 9, headers={"X-Infinity-Lane": "online"}))[0] == 200


async def test_models_are_those_of_the_key(pair: Pair) -> None:
    key = pair.keys["elsewhere"]
    async with aiohttp.ClientSession(pair.replicas[1].url, headers=_bearer(key)) as http:
        async with http.get("/v1/models") as response:
            assert (response.status, (await response.json())["data"]) == (200, [])
        for path in ("/v1/models/m", "/info"):
            async with http.get(path) as response:
                assert response.status == 404
                assert "there is: none" in await response.text()


async def test_models_tell_the_keys_limits(pair: Pair) -> None:
    for name, limits in (("plain", None), ("holder", 2)):
        async with (
            aiohttp.ClientSession(pair.replicas[1].url, headers=_bearer(pair.keys[name])) as http,
            http.get("/models") as response,
        ):
            answer = await response.json()
            check("/models", response.status, answer, "get")
            assert (answer.get("key_limits") or {}).get("concurrent_items") == limits
            assert response.headers.get("x-ratelimit-limit-requests") is None


def test_a_wrong_key_is_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    keyring = Keyring(ApiSettings(api_key="right"))
    assert keyring.find("right")
    assert not any(keyring.find(wrong) for wrong in ("", "wrong", "right ", digest("right")))
    assert compared == [(64, 64)] * 5


async def test_a_key_that_is_revoked_is_refused_by_all(pair: Pair, redis: Redis) -> None:
    old = pair.keys["leaver"]
    new = await keyring.rotate(redis, "leaver", "someone@somewhere")
    pair.secrets.append(new)
    for replica in pair.replicas:
        await until(partial(_refused, replica.url, old))
        assert (await ask(replica, new))[0] == 200
    await keyring.revoke(redis, "leaver", "someone@somewhere")
    for replica in pair.replicas:
        await until(partial(_refused, replica.url, new))


async def _refused(url: str, key: str) -> bool:
    return not await _known(url, key)


async def test_both_replicas_share_one_limit(pair: Pair) -> None:
    key = pair.keys["few"]
    asked = [ask(pair.replicas[n % 2], key) for n in range(24)]
    statuses = [status for status, _, _ in await asyncio.gather(*asked)]
    assert (statuses.count(200), statuses.count(429)) == (6, 18)

    status, answer, headers = await ask(pair.replicas[0], key)
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(headers["Retry-After"]) <= 10
    told = {name: headers[f"x-ratelimit-{name}-requests"] for name in ("limit", "remaining", "reset")}
    assert (told["limit"], told["remaining"]) == ("6", "0")
    assert told["reset"].endswith("s")


async def test_openais_client_is_told_and_comes_again(pair: Pair, redis: Redis) -> None:
    caller = Caller(name="patient", requests_per_minute=60)
    key = pair.keys["patient"]
    url = f"{pair.replicas[0].url}/v1"
    await Limiter(redis).reserve(caller, items=1, tokens=0, requests=60)
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError, match="60 requests a minute") as caught:
            await client.embeddings.create(model="m", input="four")
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["x-ratelimit-limit-requests"] == "60"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=3) as client:
        assert (await client.embeddings.create(model="m", input="four")).data


async def test_a_quota_is_settled_to_what_was_run(pair: Pair, redis: Redis) -> None:
    key = pair.keys["frugal"]
    day = time.strftime("%Y-%m-%d", time.gmtime())

    async def used() -> bool:
        return await redis.get(keys.quota("frugal", day)) == b"3"

    for _ in range(3):  # the estimate of each is 3 tokens, and one is run
        assert (await ask(pair.replicas[0], key))[0] == 200
    await until(used)
    status, _, _ = await ask(pair.replicas[0], key, dimensions=10_000)  # which fails in the worker
    assert status == 400
    await until(used)
    status, answer, headers = await ask(pair.replicas[1], key, input=["x" * 20] * 2)
    assert (status, answer["error"]["code"]) == (429, "insufficient_quota")
    assert headers["x-should-retry"] == "false"
    assert (headers["x-ratelimit-limit-tokens"], headers["x-ratelimit-remaining-tokens"]) == ("10", "7")


async def test_what_a_killed_replica_held_ends_by_itself(pair: Pair) -> None:
    key = pair.keys["holder"]
    held, doomed = Held(pair.queue_url), Api(pair.queue_url)
    await held.join()
    asking = asyncio.create_task(
        ask(doomed, key, model=held.model, input=["a", "b"], headers={"X-Request-Timeout": "2"})
    )
    delivery = await held.take()
    assert (await ask(pair.replicas[0], key))[0] == 429
    doomed.stop(signal.SIGKILL)
    with pytest.raises(aiohttp.ClientError):
        await asking

    async def admitted() -> bool:
        return (await ask(pair.replicas[0], key))[0] == 200

    await until(admitted)
    await held.answer(delivery)
    await held.close()


async def test_the_file_is_read_again(pair: Pair) -> None:
    first, second = new_secret(), new_secret()
    pair.secrets += [first, second]
    replica = pair.replicas[0]
    pair.file.write_text(json.dumps({"name": "filed", "hash": digest(first), "tasks": ["embed"]}) + "\n")
    await until(partial(_known, replica.url, first))
    pair.file.write_text(json.dumps({"name": "filed", "hash": digest(second)}) + "\nno JSON: " + first)
    await asyncio.to_thread(replica.expect, "the keys stay as they were")
    assert await _known(replica.url, first)
    pair.file.write_text(json.dumps({"name": "filed", "hash": digest(second)}) + "\n")
    await until(partial(_known, replica.url, second))
    assert not await _known(replica.url, first)


async def test_usage_is_counted(pair: Pair) -> None:
    key = pair.keys["counted"]
    for replica in pair.replicas:
        assert (await ask(replica, key, input=["a", "b", "c"]))[0] == 200

    async def told(of: str) -> list[dict[str, Any]]:
        async with (
            aiohttp.ClientSession(pair.replicas[0].url, headers=_bearer(of)) as http,
            http.get("/usage") as response,
        ):
            answer = await response.json()
            check("/usage", response.status, answer, "get")
            return list(answer["data"])

    async def counted() -> bool:
        return [(used["key"], used["requests"], used["items"]) for used in await told(key)] == [("counted", 2, 6)]

    await until(counted)
    assert {"counted", "plain"} & {used["key"] for used in await told(pair.keys["root"])}
    shown = []
    for replica in pair.replicas:
        async with aiohttp.ClientSession(replica.url) as http, http.get("/metrics") as response:
            shown.append('infinity_key_items_total{key="counted",model="m"} 3.0' in await response.text())
    assert shown == [False, True]


async def test_a_day_that_is_none(pair: Pair) -> None:
    async with (
        aiohttp.ClientSession(pair.replicas[0].url, headers=_bearer(pair.keys["root"])) as http,
        http.get("/usage?since=yesterday") as response,
    ):
        assert (response.status, (await response.json())["error"]["param"]) == (400, "since")


async def test_no_key_is_in_a_log_or_in_redis(pair: Pair, redis: Redis) -> None:
    """Last, when all others have left their traces."""
    key = pair.keys["holder"]
    assert (await ask(pair.replicas[0], key))[0] == 200
    everything = b"".join([await _value(redis, name) for name in await command(redis, "KEYS", "*")])
    everything += "".join(line for replica in pair.replicas for line in replica.log).encode()
    assert b"holder" in everything
    assert len(pair.secrets) > 1
    for secret in pair.secrets:
        assert len(secret) >= 46
        assert secret.encode() not in everything


async def _value(redis: Redis, name: bytes) -> bytes:
    readers = {
        b"string": ("GET",),
        b"hash": ("HGETALL",),
        b"zset": ("ZRANGE", 0, -1),
        b"stream": ("XRANGE", "-", "+"),
    }
    kind = await command(redis, "TYPE", name)
    reader = readers[b"string" if kind == b"none" else kind]  # it has just expired
    return name + repr(await command(redis, reader[0], name, *reader[1:])).encode()


async def test_a_server_that_lost_its_keys_stays_shut() -> None:
    with EmbeddedServer.start() as server:
        async with connect(server.url) as redis:
            secret = await keyring.add(redis, Caller(name="a"), "a@b")
            api = Api(server.url)
            try:
                assert await _known(api.url, secret)
                await redis.flushall()
                await until(partial(_refused, api.url, secret))
                async with aiohttp.ClientSession(api.url) as http, http.get("/models") as response:
                    assert response.status == 401
            finally:
                api.stop()
