"""Files as they come in JSON: data URIs, or base64 alone."""

import binascii
import re
from urllib.parse import unquote_to_bytes

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import MAX_JOB_BYTES

MAX_ITEM_BYTES = MAX_JOB_BYTES - 2**16
"""Bytes of one file: a job holds it whole, with room for the rest of what a job says."""

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,31}:")
_HEADER = 256  # characters of a data URI within which its data begin
_SPACE = b" \t\r\n"
_STANDARD = bytes.maketrans(b"-_", b"+/")


def scheme_of(value: str) -> str:
    """Give the scheme that a value begins with, in small letters; empty if it has none."""
    scheme = _SCHEME.match(value)
    return scheme[0][:-1].lower() if scheme else ""


def file_of(value: str) -> bytes:
    """
    Decode one file, a data URI (RFC 2397) or base64 alone; raises InvalidInput.

    The media type is not looked at: the bytes say themselves what they are. Base64 may be of either alphabet
    (RFC 4648), broken into lines, and without its padding.
    """
    scheme = scheme_of(value)
    if not scheme:
        return _sized(_base64(value))
    if scheme != "data":
        raise InvalidInput(
            f"must be a data URI, such as data:image/png;base64,…, base64 alone, or an http or https URL, not {scheme}:"
        )
    comma = value.find(",", 0, _HEADER)
    if comma < 0:
        raise InvalidInput("is a data URI without a comma before its data")
    header, data = value[:comma], value[comma + 1 :]
    if header.lower().endswith(";base64"):
        return _sized(_base64(unquote_to_bytes(data) if "%" in data else data))
    check_size(len(data) // 3)  # every byte may be written as three characters
    return _sized(unquote_to_bytes(data))


def check_size(size: int) -> None:
    """Refuse what would not fit, before it is there where that can be told; raises InvalidInput."""
    if size > MAX_ITEM_BYTES:
        raise InvalidInput(f"has about {size} bytes; a file may have {MAX_ITEM_BYTES}, so send it smaller")


def _base64(text: str | bytes) -> bytes:
    check_size(len(text) // 4 * 3 * 76 // 78 - 2)  # lines of 76 characters are the shortest in use, with two at the end
    try:
        data = text.encode("ascii") if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise InvalidInput("is no base64: it has characters that are not ASCII") from None
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except binascii.Error:  # as most have it, and the rest costs a pass or two more
        data = data.translate(_STANDARD, _SPACE).rstrip(b"=")
    try:
        return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except binascii.Error as error:
        raise InvalidInput(f"is no base64: {error}") from error


def _sized(data: bytes) -> bytes:
    if not data:
        raise InvalidInput("is empty")
    check_size(len(data))
    return data
