"""Turns results into the bytes of an answer: arrays straight into JSON or base64, never through lists of floats."""

import asyncio
import time
import uuid
from binascii import b2a_base64
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import numpy as np
import orjson
from aiohttp import web

from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import WorkerInfo

Encoding = Literal["float", "base64"]

TRUNCATED_HEADER = "X-Infinity-Truncated"
"""How many items were cut to the model's limit, where any was; OpenAI's answer has no field for it."""

FINGERPRINT_HEADER = "X-Infinity-Fingerprint"
"""What the vectors depend on: those of another fingerprint are not to be compared with them."""

DTYPE_HEADER = "X-Infinity-Dtype"
"""The numpy dtype of an answer's numbers, where it is not float32; packed bits are int8 or uint8."""

SLICE = 2**15
"""Numbers rendered at a time, well under a millisecond's work; a larger answer is streamed."""

_JSON = "application/json"


def json_response(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with JSON; numpy arrays of numbers may be in it."""
    return web.Response(body=dumps(data), status=status, headers=headers, content_type=_JSON)


def embeddings_response(model: str, result: Result, encoding: Encoding, worker: WorkerInfo | None) -> web.Response:
    """
    Answer with the rows of an array, [n, width], as OpenAI does; `worker` stands for the model's.

    A large answer is rendered in slices, and between two of them all other requests have their turn.
    """
    rows = little(np.asarray(result.outputs))
    about = {"model": model, "usage": usage_of(result), **identity()}
    headers = result_headers(result, worker)
    if rows.size <= SLICE:
        return json_response({"object": "list", "data": _entries(rows, 0, encoding), **about}, headers=headers)
    return web.Response(body=_stream(rows, about, encoding), headers=headers, content_type=_JSON)


def usage_of(*results: Result) -> dict[str, int]:
    """Count the tokens that were run, under the names that OpenAI has for it."""
    tokens = sum(result.tokens for result in results)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def identity() -> dict[str, Any]:
    """Give what tells an answer from others, and its time."""
    return {"id": f"infinity-{uuid.uuid4()}", "created": int(time.time())}


def result_headers(result: Result, worker: WorkerInfo | None) -> dict[str, str]:
    """Say what a result has beside its outputs; `worker` stands for the model's."""
    headers = {FINGERPRINT_HEADER: worker.fingerprint} if worker and worker.fingerprint else {}
    if (dtype := _dtype_of(result)) not in ("", "float32"):
        headers[DTYPE_HEADER] = dtype
    if result.truncated:
        headers[TRUNCATED_HEADER] = str(result.truncated)
    return headers


def little(array: Array) -> Array:
    """Give an array's numbers in one piece, little-endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _dtype_of(result: Result) -> str:
    """Name what vectors and matrices are of, nothing for sparse ones."""
    first = next(iter(result.outputs), None)
    return first.dtype.name if isinstance(first, np.ndarray) else ""


async def _stream(rows: Array, about: dict[str, Any], encoding: Encoding) -> AsyncIterator[bytes]:
    step = max(1, SLICE // rows.shape[1])
    lead = b'{"object":"list","data":['
    for first in range(0, len(rows), step):
        yield lead + dumps(_entries(rows[first : first + step], first, encoding))[1:-1]
        await asyncio.sleep(0)
        lead = b","
    yield b"]," + dumps(about)[1:]


def _entries(rows: Array, first: int, encoding: Encoding) -> list[dict[str, Any]]:
    values = map(base64_of, rows) if encoding == "base64" else rows
    return [
        {"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(values, start=first)
    ]


def base64_of(row: Array) -> str:
    """Give a row's numbers, little-endian, of which OpenAI's clients read float32."""
    return b2a_base64(row.data, newline=False).decode("ascii")


def dumps(data: Any) -> bytes:
    """Give JSON; numpy arrays of numbers may be in it."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
