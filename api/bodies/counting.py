"""How much a body's JSON holds, counted before it is parsed, since its values may take a hundred times its bytes."""

import asyncio
import re

from infinity_pool.broker.errors import InvalidInput

LARGE = 2**20
"""Bytes of a body that is looked at before it is parsed, and of what it may have outside of strings."""

_STRINGS = 2**19
_SLICE = 2**16  # bytes, under a millisecond's work
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)


async def check_values(data: bytes) -> None:
    """
    Refuse a large body that is not mostly text, with InvalidInput.

    It is looked at in slices, and between two of them other requests have their turn.
    """
    strings = bare = first = 0
    inside = False  # of a string that began in an earlier slice
    while first < len(data) > LARGE:
        last = first + _SLICE
        piece = data[first:last]
        if _ends_within_escape(piece):
            last += 1
            piece = data[first:last]
        if not inside or b'"' in piece:
            rest = _STRING.sub(rb'"\1', b'"' + piece if inside else piece)
            quotes = rest.count(b'"')
            inside = quotes % 2 == 1
            strings += quotes // 2
            bare += len(rest) - quotes
        if strings > _STRINGS or bare > LARGE:
            raise InvalidInput("the body holds too many values")
        first = last
        await asyncio.sleep(0)


def _ends_within_escape(piece: bytes) -> bool:
    """Whether a slice ends between a backslash and what it stands before; backslashes go in pairs else."""
    return (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1
