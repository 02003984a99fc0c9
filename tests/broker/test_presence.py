import asyncio

import msgpack
import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.presence import (
    EXPIRY,
    Mixed,
    WorkerInfo,
    beat,
    forget_worker,
    merged,
    read_model,
    read_models,
)


def worker(id: str, **changes: object) -> WorkerInfo:
    return WorkerInfo(**{"id": id, "model": "m", "state": "ready", **changes})  # type: ignore[arg-type]


async def test_the_living_are_seen_and_the_dead_are_not(redis: Redis) -> None:
    await beat(redis, worker("w1", engine="onnx", tokens_per_second=100.0))
    await beat(redis, worker("w2", tokens_per_second=50.0))

    [model] = await read_models(redis)
    assert [each.id for each in model.workers] == ["w1", "w2"]
    assert model.ready
    best = merged(model.workers)
    assert best is not None
    assert (best.engine, best.tokens_per_second) == ("onnx", 150.0)

    await forget_worker(redis, "m", "w1")
    assert [each.id for each in (await read_model(redis, "m")).workers] == ["w2"]
    await asyncio.sleep(EXPIRY + 0.2)
    [model] = await read_models(redis)  # it is still known, though nobody serves it
    assert not model.ready
    assert merged(model.workers) is None


async def test_a_model_that_loads_is_not_ready(redis: Redis) -> None:
    await beat(redis, worker("w1", state="loading", stage="exporting"))

    model = await read_model(redis, "m")

    assert not model.ready
    assert model.workers[0].stage == "exporting"


async def test_vectors_of_one_name_do_not_mix(redis: Redis) -> None:
    await beat(redis, worker("w1", fingerprint="aaa"))
    await beat(redis, worker("w2", fingerprint="aaa"))

    with pytest.raises(Mixed, match=r"aaa.*bbb"):
        await beat(redis, worker("w3", fingerprint="bbb"))
    await beat(redis, worker("w4", fingerprint="bbb"), mix=True)

    assert [each.id for each in (await read_model(redis, "m")).workers] == ["w1", "w2", "w4"]


async def test_a_name_is_free_when_its_workers_are_gone(redis: Redis) -> None:
    await beat(redis, worker("w1", fingerprint="aaa"))
    await asyncio.sleep(EXPIRY + 0.2)

    await beat(redis, worker("w2", fingerprint="bbb"))


async def test_every_key_expires_or_is_bounded(redis: Redis) -> None:
    await beat(redis, worker("w1", fingerprint="aaa"))

    for key in (keys.worker("m", "w1"), keys.workers("m"), keys.fingerprint("m")):
        assert await redis.pttl(key) > 0


def test_fields_of_a_newer_version_are_passed_over() -> None:
    data = msgpack.packb({"id": "w1", "model": "m", "later": 1})

    assert WorkerInfo.from_wire(data) == WorkerInfo(id="w1", model="m")
