"""
Answers that are lists of entries of their own lengths: sparse vectors and matrices.

An entry is made in pieces of JSON, each well under a millisecond's work; where they are many they are streamed, and
between two of them all other requests have their turn.
"""

import asyncio
from binascii import b2a_base64
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from aiohttp import web

from infinity_pool.api.rendering import SLICE, Encoding, dumps, little
from infinity_pool.broker.messages import Array

_PAIRS = 2**11  # an index and a value, put together one by one
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
    return pieces_response(_whole(pieces, about), numbers, headers)


def bare_response(pieces: Iterable[bytes], numbers: int, headers: Mapping[str, str]) -> web.Response:
    """Answer with a list of entries, of so many numbers in all, and nothing else."""
    return pieces_response(chain((b"[",), pieces, (b"]",)), numbers, headers)


def row_pieces(rows: Array) -> Iterator[bytes]:
    """Render the rows of an array, [n, width]."""
    yield from _rows(little(rows))


def plain_matrix_pieces(matrices: Iterable[Array]) -> Iterator[bytes]:
    """Render arrays, [tokens, width], as lists of lists."""
    for index, matrix in enumerate(matrices):
        yield _comma(index)
        yield from _lists(matrix)


def pair_pieces(vectors: Iterable[Sequence[Array]]) -> Iterator[bytes]:
    """Render [indices, values] of each item as a list of both in pairs."""
    for index, (indices, values) in enumerate(vectors):
        yield _comma(index) + b"["
        for first in range(0, len(indices), _PAIRS):
            some = slice(first, first + _PAIRS)
            both = zip(*(dumps(little(side[some]))[1:-1].split(b",") for side in (indices, values)), strict=True)
            yield _comma(first) + b",".join(b'{"index":%b,"value":%b}' % pair for pair in both)
        yield b"]"


def pieces_response(parts: Iterable[bytes], numbers: int, headers: Mapping[str, str]) -> web.Response:
    """Answer with the pieces of a body, of so many numbers in all; a large one is streamed."""
    body = b"".join(parts) if numbers <= SLICE else _stream(parts)
    return web.Response(body=body, headers=headers, content_type="application/json")


def _comma(index: int) -> bytes:
    return b"," if index else b""


def _lists(matrix: Array) -> Iterator[bytes]:
    yield b"["
    yield from _rows(little(matrix))
    yield b"]"


def _rows(rows: Array) -> Iterator[bytes]:
    step = max(1, SLICE // max(1, rows[:1].size))
    for first in range(0, len(rows), step):
        yield _comma(first) + dumps(rows[first : first + step])[1:-1]


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
