"""
The messages that cross the queue, and their bytes: msgpack maps whose fields are only ever added.

Arrays travel as one extension type: a little header (dtype, shape), then the raw buffer. Nothing is ever unpickled.
"""

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgpack
import numpy as np
from numpy.typing import NDArray

from infinity_pool.broker.errors import InfinityError, InvalidInput, from_wire

WIRE_VERSION = 1
MAX_JOB_BYTES = 8 * 2**20
MAX_REPLY_BYTES = 512 * 2**20

Array = NDArray[Any]
Item = Any  # a text, a pair, or the bytes of an image or a sound; the family says what it takes
Lane = Literal["online", "bulk"]
Task = Literal["embed", "rerank", "classify", "sparse", "multivector", "tokenize", "decode"]
LANES: tuple[Lane, ...] = get_args(Lane)
TASKS: tuple[Task, ...] = get_args(Task)
UNRUN: tuple[Task, ...] = ("tokenize", "decode")
"""What a worker's preprocessing answers by itself, of any model with a tokenizer; no model lists these as its own."""

_TIMES = [float] * 3
_ARRAY = 1  # the msgpack extension type of an array
_DTYPES = frozenset("biuf")  # numpy kinds allowed on the wire: no objects, no records

logger = logging.getLogger(__name__)


class Job(NamedTuple):
    """
    Some items for one model and one task.

    `cost` is the estimate of its tokens that admission and the take count in; `ttl_ms` is the time it has from the
    moment it is queued (None: no deadline), since hosts' clocks differ; `reply_to` is the key of a reply channel.
    `key` names whose it is, where keys take turns.
    """

    id: str
    task: str
    items: list[Item]
    options: dict[str, Any]
    reply_to: str
    lane: Lane
    cost: int
    ttl_ms: int | None = None
    key: str = ""


_JOB_TYPES = (str, str, list, dict, str, str, int, int | None, str)
_LATER = {"key": ""}
"""What older producers do not say of a job, and is meant."""


class Times(NamedTuple):
    """What a job's time went into, in ms: waiting to be prepared and run, being prepared, and being run."""

    queued: float
    prepared: float
    ran: float


class Result(NamedTuple):
    """
    A job's outputs, one for each of its items.

    `outputs` is one array whose first axis is the items, or a list where their shapes differ. `tokens` counts what
    the model really ran, `truncated` the items that were cut to its limit. `times` are its worker's, if it says them.
    """

    job_id: str
    outputs: Array | list[Any]
    tokens: int
    truncated: int = 0
    times: Times | None = None


class Failure(NamedTuple):
    """Why a job has no result."""

    job_id: str
    error: InfinityError


Reply = Result | Failure


def encode_job(job: Job) -> bytes:
    """Give a job's bytes; raises InvalidInput if there are more than MAX_JOB_BYTES or an item is not encodable."""
    try:
        data: bytes = msgpack.packb(job._asdict(), default=_encode_array)
    except (TypeError, ValueError) as error:  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        raise InvalidInput(f"an item cannot be sent: {error}") from error
    if len(data) > MAX_JOB_BYTES:
        raise InvalidInput(f"a job of {len(data)} bytes is over the limit of {MAX_JOB_BYTES}")
    return data


def decode_job(data: bytes) -> Job:
    """Read a job; raises InvalidInput on bytes that are none."""
    fields = _unpack(data, MAX_JOB_BYTES)
    try:
        fields = _LATER | fields
        job = Job(*(fields[name] for name in Job._fields))
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"not a job: {error!r}") from error
    if not all(isinstance(value, kind) for value, kind in zip(job, _JOB_TYPES, strict=True)):
        raise InvalidInput("not a job: a field is of another type")
    if not job.items:
        raise InvalidInput("not a job: it has no items, and would never be done")
    return job


def encode_replies(replies: Sequence[Reply]) -> bytes:
    """Give the bytes of several replies to one listener."""
    data: bytes = msgpack.packb([_reply_fields(reply) for reply in replies], default=_encode_array)
    return data


def decode_replies(data: bytes) -> list[Reply]:
    """Read what `encode_replies` wrote; raises InvalidInput on bytes that are no replies."""
    unpacked = _unpack(data, MAX_REPLY_BYTES)
    if not isinstance(unpacked, list):
        raise InvalidInput(f"not replies: {type(unpacked).__name__}")
    try:
        return [_reply(fields) for fields in unpacked]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidInput(f"not replies: {error!r}") from error


def replies_in(entry: Sequence[bytes]) -> list[Reply]:
    """Read the replies in an entry of a channel, given as field, value, …; none where another hand wrote it."""
    if entry[0] != b"r":
        return []
    try:
        return decode_replies(entry[1])
    except InvalidInput as error:
        logger.error("a reply that cannot be read is passed over: %s", error)
        return []


def _reply_fields(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, Failure):
        return {"job_id": reply.job_id, "error": reply.error.to_wire()}
    return reply._asdict()


def _reply(fields: dict[str, Any]) -> Reply:
    if "error" in fields:
        return Failure(fields["job_id"], from_wire(fields["error"]))
    times = _times(fields.get("times"))
    return Result(fields["job_id"], fields["outputs"], fields["tokens"], fields["truncated"], times)


def _times(value: Any) -> Times | None:
    """Read times, which older workers do not say, and newer ones perhaps otherwise."""
    return Times(*value) if type(value) is list and [*map(type, value)] == _TIMES else None


def _unpack(data: bytes, limit: int) -> Any:
    if len(data) > limit:
        raise InvalidInput(f"a message of {len(data)} bytes is over the limit of {limit}")
    try:
        return msgpack.unpackb(data, ext_hook=_decode_array)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise InvalidInput(f"not a message: {error!r}") from error


def _encode_array(value: Any) -> msgpack.ExtType:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _DTYPES:
        raise TypeError(f"{type(value).__name__} does not travel on the queue")
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    header: bytes = msgpack.packb((little.dtype.str, little.shape))
    return msgpack.ExtType(_ARRAY, bytes([len(header)]) + header + little.tobytes())


def _decode_array(code: int, data: bytes) -> Array:
    if code != _ARRAY or not data:
        raise ValueError(f"unknown extension type {code}")
    start = 1 + data[0]
    name, shape = msgpack.unpackb(data[1:start])
    dtype = np.dtype(name)
    if dtype.kind not in _DTYPES:
        raise ValueError(f"dtype {name} does not travel on the queue")
    return np.frombuffer(data, dtype, offset=start).reshape(shape)
