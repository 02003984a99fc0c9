"""Pages of other sites, and which of them may ask here (the CORS protocol of the Fetch standard)."""

import re
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.broker.errors import InvalidInput

_ANY = "*"
_OPAQUE = "null"  # what browsers send for a page that is a file
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_MAX_AGE = "600"  # s for which a browser need not ask again
_EXPOSED = ", ".join(
    (
        *("X-Request-Id", "Retry-After", "retry-after-ms", "X-Infinity-Truncated", "X-Infinity-Fingerprint"),
        *("X-Infinity-Dtype", "x-compute-type", "x-compute-time", "x-compute-characters", "x-compute-tokens"),
        *("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"),
        *(f"x-ratelimit-{kind}-{of}" for kind in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
    )
)
_ALLOWED = web.RequestKey("origin is allowed", bool)


class Cors:
    """The application's middleware, `answer`, for the origins that are allowed; `*` is any."""

    def __init__(self, origins: Sequence[str], server: str) -> None:
        self._origins = checked_origins(origins)
        self._server = server

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tell a browser that the page may read the answer; a preflight is answered here, since it has no key."""
        origin = request.headers.get("Origin", "")
        if not self._allows(origin):
            response = await handler(request)
        elif request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            response = self._preflight(request)
        else:
            request[_ALLOWED] = True
            response = await handler(request)
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        self._mark(response, origin)
        return response

    def _allows(self, origin: str) -> bool:
        return bool(origin) and (_ANY in self._origins or origin in self._origins)

    def _preflight(self, request: web.Request) -> web.Response:
        asked = request.headers.get("Access-Control-Request-Headers", "")
        headers = {
            "Server": self._server,
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Max-Age": _MAX_AGE,
            **({"Access-Control-Allow-Headers": asked} if asked else {}),
        }
        return web.Response(status=204, headers=headers)

    def _mark(self, response: web.StreamResponse, origin: str) -> None:
        """Name the origin; credentials, such as a proxy's cookies, are for those named one by one, never for any."""
        if _ANY in self._origins:
            response.headers["Access-Control-Allow-Origin"] = _ANY
            return
        response.headers.add("Vary", "Origin")
        if origin in self._origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Allow-Credentials"] = "true"


def checked_origins(given: Sequence[str]) -> set[str]:
    """Give the origins as browsers write them; raises InvalidInput for one that no browser sends."""
    origins = {origin.rstrip("/") for origin in given}
    for origin in origins:
        if origin not in (_ANY, _OPAQUE) and not _ORIGIN.fullmatch(origin):
            raise InvalidInput(
                f"--cors-origin: {origin!r} is no origin, such as https://app.example", param="cors_origin"
            )
    return origins


def is_allowed(request: web.Request) -> bool:
    """Whether a request comes from a page of another site that may ask here."""
    return bool(request.get(_ALLOWED))
