"""Calls the application's own handlers with bodies that came otherwise than by HTTP, for a caller who is known."""

import asyncio
from functools import cached_property
from typing import NoReturn

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.payload import Payload
from aiohttp.typedefs import Handler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.bodies.reading import GIVEN, ModelBody
from infinity_pool.api.described import dialect_of, operations_of
from infinity_pool.api.errors import error_response
from infinity_pool.api.keys import SETTINGS
from infinity_pool.broker.callers import Caller


class Inside:
    """The application as it is called from within: no door, so no key, no connection, no count of HTTP requests."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._protocol = web.Server(_nobody)()  # a connection that is never made

    @cached_property
    def endpoints(self) -> dict[str, type[ModelBody]]:
        """The paths where a model is asked with JSON, and the body of each."""
        bodies = {one.path: one.description.takes for one in operations_of(self._app) if one.method == "post"}
        return {path: body for path, body in bodies.items() if body and issubclass(body, ModelBody)}

    async def request(self, path: str, body: bytes, caller: Caller, headers: dict[str, str]) -> web.Request:
        """Make a request."""
        loop = asyncio.get_running_loop()
        content = StreamReader(self._protocol, limit=2**30, loop=loop)
        content.feed_data(body)
        content.feed_eof()
        all_headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json", **headers}))
        head = RawRequestMessage("POST", path, HttpVersion11, all_headers, (), True, None, False, False, URL(path))
        task = asyncio.current_task()
        assert task
        most = self._app[SETTINGS].max_body
        request = web.Request(head, content, self._protocol, _Sink(), task, loop, client_max_size=most)
        match = await self._app.router.resolve(request)
        match.add_app(self._app)
        request._match_info = match  # as the application does
        request[CALLER] = caller
        return request


async def answer(request: web.Request) -> bytes:
    """Have a request's handler answer it, and give the body; raises what that raises."""
    handler: Handler = request.match_info.handler
    return await _body(await handler(request))


async def told(request: web.Request, error: Exception, request_id: str) -> tuple[int, bytes]:
    """Give status and body of an error, in the dialect that the request speaks."""
    response = error_response(error, request_id, dialect_of(request), request.get(GIVEN, frozenset()))
    return response.status, await _body(response)


async def _body(response: web.StreamResponse) -> bytes:
    """Give the whole of an answer, also of one that would be streamed."""
    assert isinstance(response, web.Response)
    if not isinstance(response.body, Payload):
        return bytes(response.body or b"")
    sink = _Sink()
    await response.body.write(sink)
    return b"".join(sink.pieces)


class _Sink(AbstractStreamWriter):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        self.pieces.append(chunk)

    async def drain(self) -> None:
        """Nothing waits."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Nothing is compressed."""

    def enable_chunking(self) -> None:
        """Nothing is cut."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Nobody reads them."""


async def _nobody(request: web.BaseRequest) -> NoReturn:
    raise AssertionError("nothing is received here")
