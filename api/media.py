"""Images and sounds as they come in JSON: data URIs, or base64 alone; addresses are not fetched yet."""

import asyncio
import binascii
import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import MAX_JOB_BYTES

MAX_ITEM_BYTES = MAX_JOB_BYTES - 2**16
"""Bytes of one file: a job holds it whole, with room for the rest of what a job says."""

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,31}:")
_HEADER = 256  # characters of a data URI within which its data begin


async def files_of(values: Sequence[str]) -> list[bytes]:
    """Decode a request's files; raises InvalidInput, naming the item. Between two, other requests have their turn."""
    files = []
    for item, value in enumerate(values):
        try:
            files.append(file_of(value))
        except InvalidInput as error:
            raise InvalidInput(error.message, item=item) from error
        await asyncio.sleep(0)
    return files


def file_of(value: str) -> bytes:
    """
    Decode one file, a data URI (RFC 2397) or base64 alone; raises InvalidInput.

    The media type is not looked at: the bytes say themselves what they are.
    """
    scheme = _SCHEME.match(value)
    if scheme is None:
        return _sized(_base64(value))
    name = scheme[0][:-1].lower()
    if name in ("http", "https"):
        raise InvalidInput("addresses are not fetched yet; send the file itself, as data:image/png;base64,…")
    if name != "data":
        raise InvalidInput(f"must be a data URI, such as data:image/png;base64,…, or base64 alone, not {name}:")
    comma = value.find(",", 0, _HEADER)
    if comma < 0:
        raise InvalidInput("is a data URI without a comma before its data")
    header, data = value[:comma], value[comma + 1 :]
    if header.lower().endswith(";base64"):
        return _sized(_base64(unquote_to_bytes(data) if "%" in data else data))
    _check_size(len(data) // 3)  # every byte may be written as three characters
    return _sized(unquote_to_bytes(data))


def _base64(text: str | bytes) -> bytes:
    _check_size(len(text) // 4 * 3 - 2)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise InvalidInput(f"is no base64: {error}") from error


def _sized(data: bytes) -> bytes:
    if not data:
        raise InvalidInput("is empty")
    _check_size(len(data))
    return data


def _check_size(size: int) -> None:
    """Refuse what would not fit, before it is decoded where that can be told."""
    if size > MAX_ITEM_BYTES:
        raise InvalidInput(f"has about {size} bytes; a file may have {MAX_ITEM_BYTES}, so send it smaller")
