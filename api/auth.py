"""Who calls: one key, which is kept only as a hash."""

import hmac
from hashlib import sha256
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.broker.callers import ANYONE, Caller
from infinity_pool.broker.errors import Unauthorized

AnyHandler = TypeVar("AnyHandler", bound=Handler)

CALLER = web.RequestKey("caller", Caller)
"""Who sent a request; on all that need a key, whether or not any is asked for."""

_PUBLIC: set[Handler] = set()
_ONLY = Caller(name="api-key", admin=True)


def public(handler: AnyHandler) -> AnyHandler:
    """Mark a handler that needs no key; every other one does."""
    _PUBLIC.add(handler)
    return handler


def is_public(handler: Handler) -> bool:
    """Say whether a handler needs no key."""
    return handler in _PUBLIC


class KeyCheck:
    """Compares the caller's Bearer token with the key, in constant time; an empty key lets everyone in."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(key) if key else None

    def __call__(self, request: web.Request) -> None:
        """Put down who calls; raises Unauthorized unless the request carries the key or needs none."""
        if self._digest is None or request.match_info.handler in _PUBLIC:
            request[CALLER] = ANYONE
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("a key is needed: send the header `Authorization: Bearer KEY`")
        if not hmac.compare_digest(_digest(token.strip()), self._digest):
            raise Unauthorized("the key is wrong")
        request[CALLER] = _ONLY


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
