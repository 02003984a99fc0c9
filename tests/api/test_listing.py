"""Entries of their own lengths, in one piece or in many."""

import json
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

from infinity_pool.api.listing import list_response, matrix_pieces, sparse_pieces
from infinity_pool.api.rendering import SLICE, Encoding
from infinity_pool.broker.messages import Array

SHAPES = [(3, 4), (0, 4), (1, 4), (5,), (SLICE, 3), (2, SLICE + 1), (200_000, 1)]


def parsed(pieces: list[bytes]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(b"[" + b"".join(pieces) + b"]")
    return entries


def matrices() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for shape in SHAPES]


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_matrices_arrive_whole(encoding: Encoding) -> None:
    entries = parsed(list(matrix_pieces(matrices(), encoding)))

    assert [entry["index"] for entry in entries] == list(range(len(SHAPES)))
    assert {entry["object"] for entry in entries} == {"pooling"}
    for entry, matrix in zip(entries, matrices(), strict=True):
        data = np.frombuffer(b64decode(entry["data"]), "<f4") if encoding == "base64" else np.array(entry["data"])
        assert entry["shape"] == list(matrix.shape)
        np.testing.assert_array_equal(data.astype(np.float32).reshape(entry["shape"]), matrix)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_no_piece_is_long(encoding: Encoding) -> None:
    longest = max(len(piece) for piece in matrix_pieces(matrices()[-1:], encoding))

    assert longest < 14 * 3 * SLICE


def test_sparse_vectors() -> None:
    vectors = [[np.array([3, 70_000], np.int32), np.array([0.1, 2.5], np.float32)], [np.array([]), np.array([])]]

    entries = parsed(list(sparse_pieces(vectors)))

    assert entries == [
        {"object": "sparse", "index": 0, "indices": [3, 70_000], "values": [0.1, 2.5]},
        {"object": "sparse", "index": 1, "indices": [], "values": []},
    ]


@pytest.mark.parametrize("numbers", [1, SLICE + 1])
async def test_few_numbers_come_at_once_and_many_in_pieces(numbers: int) -> None:
    response = list_response(iter([b'{"a":1}', b',{"a":2}']), numbers, {"model": "m"}, {"X-Some": "thing"})

    body: Any = response.body
    parts = [body] if isinstance(body, bytes) else [part async for part in body._value]
    assert len(parts) == (1 if numbers == 1 else 4)
    assert json.loads(b"".join(parts)) == {"object": "list", "data": [{"a": 1}, {"a": 2}], "model": "m"}
    assert response.headers["X-Some"] == "thing"
