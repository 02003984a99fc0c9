"""
Connections: how long they may be silent, and what is answered where no handler of ours is reached.

That is HTTP that cannot be read, and an Expect that cannot be met.
"""

import asyncio
import re
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, ContentEncodingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from infinity_pool.api.described import dialect_of
from infinity_pool.api.dialects import openai
from infinity_pool.api.door import SERVER
from infinity_pool.api.errors import error_response
from infinity_pool.api.keys import SETTINGS
from infinity_pool.api.rendering import json_response

_REQUEST_LINE = re.compile(r"'[A-Z]+ \S+ HTTP/1\.")


class Connection(RequestHandler):
    """
    One connection; its errors have the shape of all others, and name no versions of what runs here.

    It is closed where a request's head has not come within `patience` seconds of its first byte, or, of the first
    request, of the connection.
    """

    __slots__ = ("_head_timer", "_patience")

    def __init__(self, *args: Any, patience: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._patience = patience
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what came; where that is a part of a head, its time begins with it."""
        heads = self._request_count
        super().data_received(data)
        if self._request_count > heads:
            self._stop_waiting()
        elif self._waiter is not None and not self._waiter.done():  # no request is in hand, whose body it could be
            self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._patience, self.force_close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what broke outside of a handler, and close; raises ConnectionError if an answer has begun."""
        super().handle_error(request, status, exc, message)  # it logs, and sees whether an answer has begun
        status, words, code = _told(status, exc)
        response = json_response(openai.error_body(status, words, code), status=status)
        response.force_close()
        return _signed(response)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer; one that aiohttp raised gets our shape first."""
        if isinstance(resp, web.HTTPException):
            dialect = dialect_of(request) if isinstance(request, web.Request) else openai
            resp = _signed(error_response(resp, "", dialect))
        return await super().finish_response(request, resp, start_time)


class Runner(web.AppRunner):
    """Runs an application on such connections."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,
            patience=self.app[SETTINGS].read_timeout,
        )


class _Server(web.Server):
    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


def _told(status: int, error: BaseException | None) -> tuple[int, str, str]:
    """Say what is wrong, without repeating what was sent: the status, words and a code."""
    if isinstance(error, LineTooLong):
        return status, "a line of the request's head is too long", "invalid_input"
    if isinstance(error, ContentEncodingError):
        return 415, "the body's Content-Encoding is not taken; gzip and deflate are", "unsupported_media_type"
    if isinstance(error, BadHttpMethod) and _REQUEST_LINE.search(error.message):
        return 501, "there is no such method here; GET, HEAD, POST and OPTIONS are", "not_implemented"
    if status < 500:
        return status, "the request cannot be read: it is no valid HTTP", "invalid_input"
    return status, "the server failed at this request", "internal"


def _signed(response: web.Response) -> web.Response:
    response.headers["Server"] = SERVER
    return response
