"""Bodies of multipart/form-data (RFC 7578): files beside the fields that JSON would have."""

import asyncio
import base64
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from aiohttp import web

from infinity_pool.api.network.cors import is_allowed
from infinity_pool.broker.errors import InvalidInput

FORM = "multipart/form-data"

_FILES = ("file", "files", "files[]", "file[]")
"""What clients call files, beside the name of the field that they are for."""

_PARTS = 4096
_HEAD = 4096  # bytes of a part's headers
_OWN_SITES = ("same-origin", "none")


def check_origin(request: web.Request) -> None:
    """
    Refuse a form that a browser sends for a page of another site, unless that may ask here.

    Browsers send forms across sites without asking, unlike JSON, so any page could have them work here. They say so
    in headers that no page can change; other clients send neither. Raises web.HTTPForbidden.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    own = site in _OWN_SITES if site is not None else origin is None or origin.partition("://")[2] == request.host
    if not own and not is_allowed(request):
        raise web.HTTPForbidden(text="forms of pages of other sites are not taken; send JSON")


async def fields_of(data: bytes, content_type: str, files: str) -> dict[str, Any]:
    """
    Give a form's fields; those called `files` are a list, with each file as a data URI.

    Values are text, as forms have no other. Between two parts, other requests have their turn. Raises InvalidInput.
    """
    fields: dict[str, Any] = {}
    listed: list[str] = []
    for head, content in _parts(data, _boundary(content_type)):
        name = head.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise InvalidInput("the form has a part without a name")
        if head.get_filename() is not None:
            if name not in (files, f"{files}[]", *_FILES):
                raise InvalidInput(f"{name[:100]} is no field for files; {files} is", param=files)
            listed.append(f"data:;base64,{base64.b64encode(content).decode()}")
        elif name in (files, f"{files}[]"):
            listed.append(_text(name, content))
        elif name in fields:
            raise InvalidInput(f"{name[:100]} is given twice", param=name[:100])
        else:
            fields[name] = _text(name, content)
        await asyncio.sleep(0)
    return fields | ({files: listed} if listed else {})


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{name[:100]} is no text in UTF-8; a file needs a file name", param=name[:100]) from None


def _boundary(content_type: str) -> bytes:
    head = Message()
    head["Content-Type"] = content_type
    boundary = head.get_boundary()
    if not boundary or len(boundary) > 70 or not boundary.isascii():
        raise InvalidInput("the form's Content-Type has no boundary of 1 to 70 characters")
    return boundary.encode()


def _parts(data: bytes, boundary: bytes) -> Iterator[tuple[Message, bytes]]:
    """Split a form into the head and the content of its parts."""
    delimiter = b"\r\n--" + boundary
    data = b"\r\n" + data
    if data.count(delimiter) > _PARTS:
        raise InvalidInput(f"the form has more than {_PARTS} parts")
    _, *parts = data.split(delimiter)
    if not parts or not parts[-1].startswith(b"--"):
        raise InvalidInput("the form is cut off: its last boundary is missing")
    return map(_part, parts[:-1])


def _part(part: bytes) -> tuple[Message, bytes]:
    end = part.find(b"\r\n\r\n", 0, _HEAD)
    if end < 0:
        raise InvalidInput(
            f"the form has a part without an end of its headers, or with more than {_HEAD} bytes of them"
        )
    return BytesParser(policy=HTTP).parsebytes(part[:end].lstrip() + b"\r\n\r\n", headersonly=True), part[end + 4 :]
