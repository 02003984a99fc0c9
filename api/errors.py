"""The one place where an error becomes an HTTP status and a body, in the shape of the dialect that was spoken."""

import logging
import math
import re
from collections.abc import Mapping, Sequence, Set
from http import HTTPStatus

from aiohttp import web
from redis.exceptions import RedisError

from infinity_pool.api.described import Dialect
from infinity_pool.api.dialects import openai
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.errors import InfinityError, InvalidInput, QuotaExceeded, Unavailable

STATUS = {
    "invalid_input": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "model_not_found": 404,
    "not_found": 404,
    "unprocessable": 422,
    "insufficient_quota": 429,
    "overloaded": 429,
    "rate_limit_exceeded": 429,
    "cancelled": 499,
    "internal": 500,
    "worker_failed": 500,
    "dead_lettered": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""HTTP status by the error's code on the wire."""

_KEPT_HEADERS = ("Allow",)

logger = logging.getLogger(__name__)


def error_response(
    error: Exception, request_id: str, dialect: Dialect = openai, given: Set[str] = frozenset()
) -> web.Response:
    """
    Answer an error; one that nobody raised on purpose is logged with the request's id and told without details.

    Options are called as the request calls them, by the fields that are `given` in it.
    """
    if isinstance(error, web.HTTPException):
        return _of_http(error, dialect)
    if isinstance(error, RedisError):
        error = Unavailable("the queue cannot be reached now")
    if isinstance(error, web.RequestPayloadError):
        error = InvalidInput("the body cannot be read: it is not what its headers say")
    if not isinstance(error, InfinityError):
        logger.error("request %s failed", request_id, exc_info=error)
        error = InfinityError(f"the server failed at this request; its log knows more under {request_id}")
    return _of_ours(error, dialect, given)


def _of_ours(error: InfinityError, dialect: Dialect, given: Set[str]) -> web.Response:
    status = STATUS.get(error.code, 500)
    message, param = _as_given(error, dialect.NAMES, given)
    if error.item is not None:
        param = f"{param or 'input'}[{error.item}]"
        message = f"{param}: {message}"
    body = dialect.error_body(status, message, error.code, param)
    return json_response(body, status=status, headers=_headers(error, status))


def _as_given(error: InfinityError, names: Mapping[str, Sequence[str]], given: Set[str]) -> tuple[str, str | None]:
    """Give the message and the field, which are told of by our option's name, by that of the field that was given."""
    ours = error.param or ""
    theirs = next((name for name in names.get(ours, ()) if name in given), None)
    if theirs is None or ours in given:
        return error.message, error.param
    return re.sub(rf"\b{ours}\b", theirs, error.message, count=1), theirs


def _headers(error: InfinityError, status: int) -> dict[str, str]:
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        wait = error.retry_after or 1.0
        again = {"x-should-retry": "false"} if isinstance(error, QuotaExceeded) else {}  # it would be hours
        return {"Retry-After": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))} | again
    if error.code == "dead_lettered":  # OpenAI's clients would break more workers by trying again
        return {"x-should-retry": "false"}
    return {}


def _of_http(error: web.HTTPException, dialect: Dialect) -> web.Response:
    """Answer what aiohttp itself refuses: no such path, wrong method, a body over the limit."""
    headers = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
    code = HTTPStatus(error.status).name.lower()
    body = dialect.error_body(error.status, _explain(error), code)
    response = json_response(body, status=error.status, headers=headers)
    if error.status == HTTPStatus.REQUEST_TIMEOUT:  # the rest of its body is not waited for
        response.force_close()
    return response


def _explain(error: web.HTTPException) -> str:
    if isinstance(error, web.HTTPNotFound):
        return "there is nothing at this path; /docs of this server lists what there is"
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{error.method} is not allowed here, only {', '.join(sorted(error.allowed_methods))}"
    return error.text or error.reason
