"""What another hand puts on the queue is refused by name, never met with an error that nobody expects."""

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Job, Result, decode_job, decode_replies, encode_job, encode_replies
from tests.broker.conftest import Echo

JOB = Job("id", "embed", ["a"], {}, "replies", "online", 1, 1000)

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text() | st.binary()
extensions = st.builds(msgpack.ExtType, st.integers(0, 127), st.binary())
values = st.recursive(
    scalars | extensions, lambda some: st.lists(some) | st.dictionaries(st.text(max_size=8), some), max_leaves=8
)


def reads_or_refuses(data: bytes) -> None:
    for decode in (decode_job, decode_replies):
        try:
            decode(data)
        except InvalidInput:
            continue


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    reads_or_refuses(data)


@given(values)
def test_any_message(value: Any) -> None:
    reads_or_refuses(msgpack.packb(value))


@given(st.sampled_from(Job._fields), values)
def test_a_job_with_any_field_replaced(name: str, value: Any) -> None:
    reads_or_refuses(msgpack.packb({**JOB._asdict(), name: value}))


@given(st.integers(0, 60), st.integers(0, 255))
def test_a_reply_with_any_byte_replaced(place: int, byte: int) -> None:
    data = bytearray(encode_replies([Result("id", np.ones((2, 3), np.float32), 5)]))
    data[place % len(data)] = byte
    reads_or_refuses(bytes(data))


@pytest.mark.parametrize(
    "broken", [{"items": []}, {"items": "text"}, {"cost": "1"}, {"reply_to": 7}, {"options": None}]
)
def test_a_job_that_could_not_be_run(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="not a job"):
        decode_job(encode_job(JOB._replace(**broken)))


async def test_a_take_passes_over_what_is_no_job(client: QueueClient, redis: Redis, echo: Echo) -> None:
    for lane in ("online", "bulk"):
        await redis.xadd(keys.jobs("m", lane), {"some": "thing"})
        await redis.xadd(keys.jobs("m", lane), {"c": "1", "n": "1", "j": b"\xc1"})
    assert (await client.embed("m", "four")).tolist() == [4, 4, 4]
    assert (await client.embed("m", "four", lane="bulk")).tolist() == [4, 4, 4]


async def test_a_listener_passes_over_what_is_no_reply(client: QueueClient, redis: Redis) -> None:
    [channel] = await redis.keys("infinity:1:replies:*")
    for fields in ({"some": "thing"}, {"r": b"\xc1"}, {"r": msgpack.packb([{"job_id": 1, "error": 2}])}):
        await redis.xadd(channel, fields)  # type: ignore[arg-type] # invariance of dict
    assert (await client.embed("m", "four")).tolist() == [4, 4, 4]


async def test_a_look_passes_over_what_is_no_heartbeat(client: QueueClient, redis: Redis) -> None:
    for name, data in (("x", b"\xc1"), ("y", b"\x01"), ("z", msgpack.packb({"pid": 1}))):
        await redis.set(keys.worker("m", name), data)
        await redis.zadd(keys.workers("m"), {name: 2**40})
    [model] = await client.models()
    assert [worker.id for worker in model.workers] == ["w1"]
    assert (await client.embed("m", "four")).tolist() == [4, 4, 4]
