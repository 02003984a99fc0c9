"""
An HTTP/1.1 connection that costs next to nothing, so that the load generator is not what is measured.

It sends requests that were made beforehand, one at a time, and of an answer it reads the status and where it ends.
"""

import asyncio
import ssl
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

_HEAD_END = b"\r\n\r\n"
_CHUNKS_END = b"0\r\n\r\n"
_KEPT = 500  # bytes of a body, to tell what an error said


class Answer(NamedTuple):
    """An answer's status, its body's first bytes and its whole length."""

    status: int
    start: bytes
    length: int


class Connection(asyncio.Protocol):
    """A keep-alive connection; make it with `open`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._begin()

    @classmethod
    async def open(cls, url: str, trust: ssl.SSLContext | None = None) -> Self:
        """Connect to the host of a URL; https with `trust`, by default the system's. Raises OSError if that fails."""
        parts = urlsplit(url)
        context = trust or ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if context else 80)
        _, protocol = await asyncio.get_running_loop().create_connection(cls, parts.hostname or "", port, ssl=context)
        return protocol

    async def send(self, request: bytes) -> Answer:
        """Send a request and wait for the end of its answer; raises OSError if the connection is lost."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server has closed the connection")
        self._begin()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Read a piece of the answer."""
        if self._status:
            self._body(data)
            return
        self._head += data
        head, found, rest = self._head.partition(_HEAD_END)
        if found:
            self._read_head(head)
            self._body(rest)

    def _begin(self) -> None:
        self._head = b""
        self._status = 0
        self._expected: int | None = None  # None: the body comes in chunks
        self._length = 0
        self._start = b""
        self._end = b""

    def _read_head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        _, found, rest = head.lower().partition(b"\r\ncontent-length:")
        self._expected = int(rest.partition(b"\r\n")[0]) if found else None

    def _body(self, data: bytes) -> None:
        self._length += len(data)
        if len(self._start) < _KEPT:
            self._start += data[: _KEPT - len(self._start)]
        if self._is_whole(data) and self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(self._status, self._start, self._length))

    def _is_whole(self, data: bytes) -> bool:
        if self._expected is not None:
            return self._length >= self._expected
        self._end = (self._end + data)[-len(_CHUNKS_END) :]
        return self._end == _CHUNKS_END
