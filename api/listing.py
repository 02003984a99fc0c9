"""
Answers that are lists of entries of their own lengths: sparse vectors and matrices.

An entry is made in pieces of JSON, each well under a millisecond's work; where they are many they are streamed, and
between two of them all other requests have their turn.
"""

import asyncio
from binascii import b2a_base64
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from infinity_pool.api.rendering import SLICE, Encoding, dumps, little
from infinity_pool.broker.messages import Array

_BASE64_ROWS = 3  # whose bytes are whole groups of base64, so that pieces can be joined


def sparse_pieces(vectors: Sequence[Sequence[Array]]) -> Iterator[bytes]:
    """Render [indices, values] of each item."""
    for index, (indices, values) in enumerate(vectors):
        yield _comma(index) + dumps({"object": "sparse", "index": index, "indices": indices, "values": values})


def matrix_pieces(
    matrices: Iterable[Array], encoding: Encoding, kind: str = "pooling", field: str = "data"
) -> Iterator[bytes]:
    """Render arrays, [tokens, width] or [width], each with its shape; in base64 it is little-endian, flat."""
    for index, matrix in enumerate(matrices):
        head = dumps({"object": kind, "index": index, "shape": list(matrix.shape)})
        yield _comma(index) + head[:-1] + b"," + dumps(field) + b":"
        yield from _base64(matrix) if encoding == "base64" else _lists(matrix)
        yield b"}"


def list_response(
    pieces: Iterable[bytes], numbers: int, about: dict[str, Any], headers: Mapping[str, str]
) -> web.Response:
    """Answer with a list of entries, of so many numbers in all, and what there is `about` it."""
    parts = _whole(pieces, about)
    body = b"".join(parts) if numbers <= SLICE else _stream(parts)
    return web.Response(body=body, headers=headers, content_type="application/json")


def _comma(index: int) -> bytes:
    return b"," if index else b""


def _lists(matrix: Array) -> Iterator[bytes]:
    rows = little(matrix)
    step = max(1, SLICE // max(1, rows[:1].size))
    yield b"["
    for first in range(0, len(rows), step):
        yield _comma(first) + dumps(rows[first : first + step])[1:-1]
    yield b"]"


def _base64(matrix: Array) -> Iterator[bytes]:
    rows = little(matrix)
    step = _BASE64_ROWS * max(1, SLICE // max(1, rows[:1].size))
    yield b'"'
    for first in range(0, len(rows), step):
        yield b2a_base64(rows[first : first + step].data, newline=False)
    yield b'"'


def _whole(pieces: Iterable[bytes], about: dict[str, Any]) -> Iterator[bytes]:
    yield b'{"object":"list","data":['
    yield from pieces
    yield b"]," + dumps(about)[1:]


async def _stream(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await asyncio.sleep(0)
