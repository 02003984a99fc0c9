"""What is answered where no handler of ours is reached: HTTP that cannot be read, and an Expect that cannot be met."""

from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from infinity_pool.api.dialects.openai import error_body
from infinity_pool.api.door import SERVER
from infinity_pool.api.errors import error_response
from infinity_pool.api.rendering import json_response


class Connection(RequestHandler):
    """One connection; its errors have the shape of all others, and name no versions of what runs here."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what broke outside of a handler, and close; raises ConnectionError if an answer has begun."""
        super().handle_error(request, status, exc, message)  # it logs, and sees whether an answer has begun
        response = json_response(_body(status, exc), status=status)
        response.force_close()
        return _signed(response)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer; one that aiohttp raised gets our shape first."""
        if isinstance(resp, web.HTTPException):
            resp = _signed(error_response(resp, ""))
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
        )


class _Server(web.Server):
    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


def _body(status: int, error: BaseException | None) -> dict[str, Any]:
    """Say what is wrong, without repeating what was sent."""
    if isinstance(error, LineTooLong):
        return error_body(status, "a line of the request's head is too long", "invalid_input")
    if status < 500:
        return error_body(status, "the request cannot be read: it is no valid HTTP", "invalid_input")
    return error_body(status, "the server failed at this request", "internal")


def _signed(response: web.Response) -> web.Response:
    response.headers["Server"] = SERVER
    return response
