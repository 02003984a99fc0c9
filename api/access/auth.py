"""Who calls, and which handlers need no key."""

from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.api.access.keyring import Keyring
from infinity_pool.broker.callers import ANYONE, Caller
from infinity_pool.broker.errors import Unauthorized

AnyHandler = TypeVar("AnyHandler", bound=Handler)

CALLER = web.RequestKey("caller", Caller)
"""Who sent a request; on all that need a key, whether or not any is asked for."""

_PUBLIC: set[Handler] = set()


def public(handler: AnyHandler) -> AnyHandler:
    """Mark a handler that needs no key; every other one does."""
    _PUBLIC.add(handler)
    return handler


def is_public(handler: Handler) -> bool:
    """Say whether a handler needs no key."""
    return handler in _PUBLIC


def check_key(request: web.Request, keyring: Keyring) -> None:
    """Put down who calls; raises Unauthorized unless the request carries a key that is known, or needs none."""
    handler = request.match_info.handler
    if handler in _PUBLIC or not keyring.closed:
        request[CALLER] = ANYONE
        return
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("a key is needed: send the header `Authorization: Bearer KEY`")
    caller = keyring.find(token.strip())
    if caller is None:
        raise Unauthorized("the key is wrong")
    request[CALLER] = caller
