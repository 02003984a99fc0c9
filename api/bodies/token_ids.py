"""Token ids in place of texts: each item's as one array, however many there are."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

TAKEN_OUT = True
"""What stands in a body's JSON in place of the `input`, or `inputs`, that was taken out of it."""

_FIELD = b'"input'
_START = re.compile(rb"(s?)\"\s*+:\s*+(?=\[[\s\[]*+-?\d)")
_IDS = re.compile(rb"[\s\d,-]*+")
_SEVERAL = re.compile(rb"\[\s*+(?=\[)")
_BEHIND = re.compile(rb"\s*+([,\]])\s*+")
_PIECE = 2**15  # bytes read at once, well under a millisecond's work
_IN_TURN = 32  # rows between which other requests have their turn
_MOST = 2**31 - 1


def are_ids(value: Any) -> bool:
    """Whether an input is token ids, of one item or in lists, rather than texts."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, int | list)


def ids_of(value: list[Any], param: str = "input") -> list[Array]:
    """Give each item's token ids, int32 [n]; raises InvalidInput, naming the item of the field `param`."""
    rows = value if isinstance(value[0], list) else [value]
    with _naming(param):
        return [_array(row, index) for index, row in enumerate(rows)]


def refuse_ids(items: Sequence[Any], modality: str) -> Sequence[Any]:
    """Give items that are no token ids; raises InvalidInput, naming the first, if they are."""
    if isinstance(items[0], np.ndarray):
        raise InvalidInput(f"must be {modality}, not token ids", param="input", item=0)
    return items


async def take_out(data: bytes) -> tuple[bytes, list[Array] | None]:
    """
    Take token ids out of a large body's JSON, since as Python's numbers they would be ten times their size.

    Gives the rest of the body, and what was in the field, None if that is something else. Raises as `ids_of` does.
    Now and then other requests have their turn.
    """
    field = _start(data)
    if field is None:
        return data, None
    start = field.end()
    with _naming(f"input{field[1].decode()}"):
        found = await _rows(data, start)
    if found is None:
        return data, None
    arrays, end = found
    return data[:start] + orjson.dumps(TAKEN_OUT) + data[end:], arrays


async def _rows(data: bytes, start: int) -> tuple[list[Array], int] | None:
    """Read a row of ids, or a list of rows, and give where it ends; None where there is something else among them."""
    several = _SEVERAL.match(data, start)
    place = several.end() if several else start
    rows: list[Array] = []
    while data.startswith(b"[", place) and (end := data.find(b"]", place)) >= 0:
        row = await _row(data, place + 1, end, len(rows))
        if row is None:
            return None
        rows.append(row)
        if several is None:
            return rows, end + 1
        behind = _BEHIND.match(data, end + 1)
        if behind is None:
            return None
        if behind[1] == b"]":
            return rows, behind.end(1)
        place = behind.end()
        if len(rows) % _IN_TURN == 0:
            await asyncio.sleep(0)
    return None


async def _row(data: bytes, first: int, end: int, index: int) -> Array | None:
    """Read one item's ids, a piece at a time; None if they are not all numbers, as is said elsewhere."""
    pieces = []
    while True:
        comma = data.rfind(b",", first, first + _PIECE) if end - first > _PIECE else -1
        last = comma if comma >= 0 else end
        piece = data[first:last]
        if not _IDS.fullmatch(piece):
            return None
        pieces.append(_array(_parsed(b"[" + piece + b"]", index), index))
        if last == end:
            return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        first = last + 1
        await asyncio.sleep(0)


def _start(data: bytes) -> re.Match[bytes] | None:
    """Find where numbers begin that are the field's; within a string its quotes would be escaped."""
    place = data.find(_FIELD)
    while place >= 0:
        if found := _START.match(data, place + len(_FIELD)):
            return found
        place = data.find(_FIELD, place + 1)
    return None


@contextmanager
def _naming(param: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        error.param = param
        raise


def _parsed(row: bytes, index: int) -> Any:
    try:
        return orjson.loads(row)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"is no JSON: {error}", item=index) from error


def _array(row: Any, index: int) -> Array:
    if not isinstance(row, list):
        raise InvalidInput(f"must be a list of token ids, which {type(row).__name__} is not", item=index)
    if not row:
        raise InvalidInput("has no tokens", item=index)
    if wrong := next(iter(set(map(type, row)) - {int}), None):
        raise InvalidInput(f"must be token ids, which {wrong.__name__} is not", item=index)
    try:
        ids = np.array(row, np.int64)
    except OverflowError as error:
        raise InvalidInput("has a token id that no model has", item=index) from error
    wrong_ids = ids[(ids < 0) | (ids > _MOST)]
    if wrong_ids.size:
        raise InvalidInput(f"token id {wrong_ids[0]} is none that a model has", item=index)
    return ids.astype(np.int32)
