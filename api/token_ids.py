"""Token ids in place of texts: each item's as one array, however many there are."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

TAKEN_OUT = True
"""What stands in a body's JSON in place of the `input` that was taken out of it."""

_FIELD = b'"input"'
_START = re.compile(rb"\s*+:\s*+(?=\[[\s\[]*+-?\d)")
_IDS = re.compile(rb"[\s\d,\[\]-]*+")
_ROW = re.compile(rb"\[[^\[\]]*+\]")
_ROWS = re.compile(rb"\[\s*+(?:\[[^\[\]]*+\]\s*+,\s*+)*+\[[^\[\]]*+\]\s*+\]")
_IN_TURN = 32  # rows between which other requests have their turn
_MOST = 2**31 - 1


def are_ids(value: Any) -> bool:
    """Whether an input is token ids, of one item or in lists, rather than texts."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, int | list)


def ids_of(value: list[Any]) -> list[Array]:
    """Give each item's token ids, int32 [n]; raises InvalidInput, naming the item."""
    rows = value if isinstance(value[0], list) else [value]
    return [_array(row, index) for index, row in enumerate(rows)]


def refuse_ids(items: Sequence[Any], modality: str) -> Sequence[Any]:
    """Give items that are no token ids; raises InvalidInput, naming the first, if they are."""
    if isinstance(items[0], np.ndarray):
        raise InvalidInput(f"must be {modality}, not token ids", param="input", item=0)
    return items


async def take_out(data: bytes) -> tuple[bytes, list[Array] | None]:
    """
    Take token ids out of a large body's JSON, since as Python's numbers they would be ten times their size.

    Gives the rest of the body, and what was in `input`, None if that is something else. Raises as `ids_of` does.
    """
    start = _start(data)
    if start is None:
        return data, None
    found = _IDS.match(data, start)
    text = found[0].rstrip(b", \t\r\n") if found else b""
    if not (_ROW.fullmatch(text) or _ROWS.fullmatch(text)):  # numbers among others: what they are is said elsewhere
        return data, None
    rows = _ROW.findall(text)
    arrays = []
    for index, row in enumerate(rows):
        arrays.append(_array(_parsed(row, index), index))
        if index % _IN_TURN == 0:
            await asyncio.sleep(0)
    return data[:start] + orjson.dumps(TAKEN_OUT) + data[start + len(text) :], arrays


def _start(data: bytes) -> int | None:
    """Find where numbers begin that are the field's; within a string its quotes would be escaped."""
    place = data.find(_FIELD)
    while place >= 0:
        if found := _START.match(data, place + len(_FIELD)):
            return found.end()
        place = data.find(_FIELD, place + 1)
    return None


def _parsed(row: bytes, index: int) -> Any:
    try:
        return orjson.loads(row)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"is no JSON: {error}", param="input", item=index) from error


def _array(row: Any, index: int) -> Array:
    if not isinstance(row, list):
        raise InvalidInput(f"must be a list of token ids, which {type(row).__name__} is not", param="input", item=index)
    if not row:
        raise InvalidInput("has no tokens", param="input", item=index)
    if wrong := next(iter(set(map(type, row)) - {int}), None):
        raise InvalidInput(f"must be token ids, which {wrong.__name__} is not", param="input", item=index)
    try:
        ids = np.array(row, np.int64)
    except OverflowError as error:
        raise InvalidInput("has a token id that no model has", param="input", item=index) from error
    wrong_ids = ids[(ids < 0) | (ids > _MOST)]
    if wrong_ids.size:
        raise InvalidInput(f"token id {wrong_ids[0]} is none that a model has", param="input", item=index)
    return ids.astype(np.int32)
