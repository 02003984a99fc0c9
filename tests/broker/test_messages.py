import re
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_pool.broker import errors
from infinity_pool.broker.errors import BY_CODE, InvalidInput, Overloaded, from_wire
from infinity_pool.broker.messages import (
    MAX_JOB_BYTES,
    Failure,
    Job,
    Result,
    Times,
    decode_job,
    decode_replies,
    encode_job,
    encode_replies,
)


def job(**changes: Any) -> Job:
    return Job("1", "embed", ["a"], {}, "replies", "online", 3)._replace(**changes)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.integers(0, 2**31))
def test_a_job_survives_the_wire(items: list[str], cost: int) -> None:
    sent = job(items=items, cost=cost, options={"dimensions": 7}, ttl_ms=5)

    assert decode_job(encode_job(sent)) == sent


def test_a_job_of_an_older_producer_is_of_no_key() -> None:
    fields = job(key="tenant")._asdict()
    del fields["key"]

    assert decode_job(msgpack.packb(fields)).key == ""
    assert decode_job(encode_job(job(key="tenant"))).key == "tenant"


@pytest.mark.parametrize("dtype", ["<f4", "<f2", ">f4", "<i8", "|u1", "|b1"])
@pytest.mark.parametrize("shape", [(2, 3), (1, 0), (0,), (2, 3, 4)])
def test_an_array_survives_the_wire(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(dtype)

    [reply] = decode_replies(encode_replies([Result("1", array, 7, 1)]))

    assert isinstance(reply, Result)
    assert isinstance(reply.outputs, np.ndarray)
    assert (reply.tokens, reply.truncated) == (7, 1)
    assert reply.outputs.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(reply.outputs, array)


def test_arrays_of_different_shapes_survive_in_a_list() -> None:
    arrays = [np.ones((2, 3), np.float32), np.ones((5, 3), np.float32)]

    [reply] = decode_replies(encode_replies([Result("1", arrays, 7)]))

    assert isinstance(reply, Result)
    assert [output.shape for output in reply.outputs] == [(2, 3), (5, 3)]


@pytest.mark.parametrize("times", [Times(1.5, 0.25, 3.0), None])
def test_times_survive_the_wire(times: Times | None) -> None:
    [reply] = decode_replies(encode_replies([Result("1", [], 7, times=times)]))

    assert isinstance(reply, Result)
    assert reply.times == times


@pytest.mark.parametrize("times", [{}, {"times": [1.0]}, {"times": "abc"}, {"times": ["a", "b", "c"]}])
def test_times_that_are_not_said_or_said_otherwise_are_none(times: dict[str, Any]) -> None:
    fields = {"job_id": "1", "outputs": [], "tokens": 7, "truncated": 0}

    [reply] = decode_replies(msgpack.packb([fields | times]))

    assert isinstance(reply, Result)
    assert reply.times is None


def test_an_error_survives_the_wire() -> None:
    [reply] = decode_replies(encode_replies([Failure("1", Overloaded("full", retry_after=2.5))]))

    assert isinstance(reply, Failure)
    assert isinstance(reply.error, Overloaded)
    assert (reply.error.message, reply.error.retry_after) == ("full", 2.5)


def test_every_error_has_a_code_of_its_own() -> None:
    drawn = re.findall(r"\w+ {2,}([a-z_]+) {2,}", errors.__doc__ or "")

    assert sorted(BY_CODE) == sorted(drawn)


def test_an_unknown_code_of_a_newer_version_is_still_an_error() -> None:
    assert from_wire({"code": "new", "message": "hm"}).message == "hm"


def test_fields_of_a_newer_version_are_passed_over() -> None:
    data = msgpack.packb({**job()._asdict(), "later": 1})

    assert decode_job(data) == job()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80",
        msgpack.packb([1, 2]),
        msgpack.packb({"id": "1"}),
        msgpack.packb(msgpack.ExtType(1, b"")),
        msgpack.packb(msgpack.ExtType(1, b"\xff")),
        msgpack.packb(msgpack.ExtType(1, bytes([9]) + msgpack.packb(("|O", (1,))) + b"\0" * 8)),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb({"id": "1"}) + b"rest",
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_job(data)
    with pytest.raises(InvalidInput):
        decode_replies(data)


@pytest.mark.parametrize("items", [["\ud83d"], [object()], [np.array([object()])], ["x" * MAX_JOB_BYTES]])
def test_what_cannot_travel_is_the_callers_error(items: list[object]) -> None:
    with pytest.raises(InvalidInput):
        encode_job(job(items=items))


def test_nothing_is_unpickled() -> None:
    pickled = msgpack.packb({**job()._asdict(), "items": [b"cos\nsystem\n(S'false'\ntR."]})

    assert decode_job(pickled).items == [b"cos\nsystem\n(S'false'\ntR."]
