"""What every request passes, in one piece since it runs with each: id, key, errors, counts."""

import asyncio
import itertools
import logging
import os
import re
import time

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.api.access.auth import CALLER, check_key, is_public
from infinity_pool.api.access.rate_headers import rate_headers
from infinity_pool.api.access.tenants import Tenants
from infinity_pool.api.bodies.reading import GIVEN
from infinity_pool.api.described import dialect_of
from infinity_pool.api.errors import STATUS, error_response
from infinity_pool.api.metrics import Metrics

REQUEST_ID = "X-Request-Id"
SERVER = "infinity-pool"
"""What the header Server says, and not which versions of what."""

_log = logging.getLogger(__name__)

_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Door:
    """The application's one middleware, `answer`."""

    def __init__(self, tenants: Tenants, metrics: Metrics) -> None:
        self._tenants = tenants
        self._metrics = metrics
        self._closing = False
        self._prefix = os.urandom(6).hex()  # tells this process's ids from those of other replicas
        self._numbers = itertools.count(1)

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, whatever happens, unless the caller has gone."""
        started = time.perf_counter()
        request_id = self._request_id(request)
        status = STATUS["cancelled"]
        self._metrics.came()
        try:
            if not self._tenants.keyring.known and not is_public(request.match_info.handler):
                await self._tenants.look_soon()
            check_key(request, self._tenants.keyring)
            response = await handler(request)
            status = response.status
        except (asyncio.CancelledError, ConnectionError):  # the caller has gone
            raise
        except Exception as error:  # noqa: BLE001 # every error is answered, and a surprise logged
            response = error_response(error, request_id, dialect_of(request), request.get(GIVEN, frozenset()))
            status = response.status
        finally:
            self._metrics.answered(_route(request), status, time.perf_counter() - started)
        response.headers[REQUEST_ID] = request_id
        response.headers["Server"] = SERVER
        caller = request.get(CALLER)
        if caller is not None and caller.limited:
            response.headers.update(rate_headers(caller, self._tenants.standing(caller)))
        if self._closing:
            response.force_close()
        _log.debug(
            "%s: %s %s from %s: %d", request_id, request.method, request.rel_url.raw_path, request.remote, status
        )
        return response

    async def close(self, app: web.Application) -> None:
        """Tell the callers of what is still in hand that theirs is the last answer on its connection."""
        self._closing = True

    def _request_id(self, request: web.Request) -> str:
        """Take the caller's id if it can stand in a header and a log, else make one."""
        sent = request.headers.get(REQUEST_ID)
        return sent if sent is not None and _GOOD_ID.fullmatch(sent) else f"{self._prefix}-{next(self._numbers)}"


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
