import json
from base64 import b64decode

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infinity_pool.api.rendering import Encoding, embeddings_response
from infinity_pool.broker.messages import Array, Result
from tests.api.turns import another_task


async def rendered(rows: Array, encoding: Encoding) -> list[bytes]:
    """Give the chunks in which the rows arrive at a client."""

    async def handler(request: web.Request) -> web.Response:
        return embeddings_response("m", Result("job", rows, 5), encoding, None)

    app = web.Application()
    app.router.add_get("/", handler)
    pieces = [b""]
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        session.get(server.make_url("/")) as answer,
    ):
        assert answer.content_type == "application/json"
        async for data, ends in answer.content.iter_chunks():
            pieces[-1] += data
            pieces += [b""] if ends else []
    return [piece for piece in pieces if piece]


def numbers(answer: bytes, encoding: Encoding, dtype: str = "float32") -> Array:
    entries = json.loads(answer)["data"]
    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    if encoding == "float":
        return np.array([entry["embedding"] for entry in entries], dtype)
    kind = np.dtype(dtype).newbyteorder("<")
    return np.stack([np.frombuffer(b64decode(entry["embedding"], validate=True), kind) for entry in entries])


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 384), (3, 13), (33, 1024), (700, 384), (1, 100_000)])
async def test_every_bit_arrives(shape: tuple[int, int], encoding: Encoding) -> None:
    rows = np.random.default_rng(1).standard_normal(shape, np.float32)

    pieces = await rendered(rows, encoding)

    assert numbers(b"".join(pieces), encoding).tobytes() == rows.tobytes()
    told = json.loads(b"".join(pieces))
    assert told.pop("id").startswith("infinity-")
    assert told.pop("created") > 1e9
    assert told | {"data": []} == {
        "object": "list",
        "data": [],
        "model": "m",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize(
    "rows",
    [
        np.frombuffer(bytes(4 * 6), np.float32).reshape(2, 3),  # cannot be written to
        np.arange(12, dtype=np.float32).reshape(3, 4)[:, :2],  # a view with gaps
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.arange(6, dtype=np.int8).reshape(2, 3),
    ],
)
async def test_any_array_of_numbers_is_taken(rows: Array, encoding: Encoding) -> None:
    pieces = await rendered(rows, encoding)

    assert numbers(b"".join(pieces), encoding, rows.dtype.name).tolist() == rows.tolist()


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_others_have_their_turn_within_a_large_answer(encoding: Encoding) -> None:
    with another_task() as turns:
        pieces = await rendered(np.ones((2048, 1024), np.float32) / 3, encoding)

    assert max(map(len, pieces)) < 2**19
    assert turns.count >= len(pieces) - 1 >= 60
