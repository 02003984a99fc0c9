"""Puts the HTTP application together."""

import asyncio
import importlib
import itertools
import os
import pkgutil
import re
import time
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.api import routes
from infinity_pool.api.auth import KeyCheck
from infinity_pool.api.errors import STATUS, error_response
from infinity_pool.api.keys import CLIENT, KEY_CHECK, METRICS, SETTINGS
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.client import QueueClient

REQUEST_ID = "X-Request-Id"

_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")
_OURS = os.urandom(6).hex()  # tells this process's ids from those of other replicas
_numbers = itertools.count(1)


def make_app(settings: ApiSettings) -> web.Application:
    """Make the application; each file in routes/ adds its own paths."""
    app = web.Application(middlewares=[_door], client_max_size=settings.max_body)
    app[SETTINGS] = settings
    app[KEY_CHECK] = KeyCheck(settings.api_key)
    app[METRICS] = Metrics(lambda: app[CLIENT].status)
    app.cleanup_ctx.append(_queue)
    for module in pkgutil.iter_modules(routes.__path__):
        app.add_routes(importlib.import_module(f"{routes.__name__}.{module.name}").routes)
    return app


async def _queue(app: web.Application) -> AsyncIterator[None]:
    settings = app[SETTINGS]
    async with QueueClient(
        settings.redis_url, timeout=settings.timeout, online_max_items=settings.online_max_items
    ) as client:
        app[CLIENT] = client
        yield


@web.middleware
async def _door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What every request passes, in one piece since it runs with each: id, key, errors, counts."""
    started = time.perf_counter()
    metrics = request.app[METRICS]
    request_id = _request_id(request)
    status = STATUS["cancelled"]
    metrics.in_flight += 1
    try:
        request.app[KEY_CHECK](request)
        response = await handler(request)
        status = response.status
    except (asyncio.CancelledError, ConnectionError):  # the caller has gone
        raise
    except Exception as error:  # noqa: BLE001 # every error is answered, and a surprise logged
        response = error_response(error, request_id)
        status = response.status
    finally:
        metrics.in_flight -= 1
        metrics.answered(_route(request), status, time.perf_counter() - started)
    response.headers[REQUEST_ID] = request_id
    response.headers["Server"] = "infinity-pool"  # and not which versions of what
    return response


def _request_id(request: web.Request) -> str:
    """Take the caller's id if it can stand in a header and a log, else make one."""
    sent = request.headers.get(REQUEST_ID)
    return sent if sent is not None and _GOOD_ID.fullmatch(sent) else f"{_OURS}-{next(_numbers)}"


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
