"""What proxies say of a request: by whom, how and for which host it came. Only those that are trusted are believed."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.broker.errors import InvalidInput

_UNIX = "unix"
_SCHEMES = ("http", "https")
_HOST = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)
_ROOT = re.compile(r"(/[\w.~%-]+)*/?", re.ASCII)
_OURS = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix")

_ROOT_PATH = web.RequestKey("root path", str)


class _Said(NamedTuple):
    """What proxies said, the nearest last."""

    addresses: Sequence[str]
    schemes: Sequence[str]
    hosts: Sequence[str]


class Proxies:
    """
    The application's middleware, `answer`; `trusted` are addresses and CIDRs, or `unix`: who comes by a Unix socket.

    Raises InvalidInput for any other.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._unix = _UNIX in trusted
        self._networks = [_network(each) for each in trusted if each != _UNIX]

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Hand on a request as its first proxy had it, if it comes from one that is trusted."""
        if not self._trusts_sender(request):
            return await handler(request)
        seen = request.clone(**self._seen(request))
        if root := _matching(_ROOT, request.headers.get("X-Forwarded-Prefix", "")):
            seen[_ROOT_PATH] = root.rstrip("/")
        return await handler(seen)

    def _trusts_sender(self, request: web.Request) -> bool:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        return self._trusts(peer[0]) if isinstance(peer, tuple) else self._unix and peer is not None

    def _trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        plain = getattr(found, "ipv4_mapped", None) or found
        return any(plain in network for network in self._networks)

    def _seen(self, request: web.Request) -> dict[str, Any]:
        """Give what is other than the connection says; every proxy on the way adds to the end of each list."""
        said = _said(request)
        hops = self._hops(said.addresses)
        seen: dict[str, Any] = {}
        if hops:
            seen["remote"] = said.addresses[-hops]
        if (scheme := _at(said.schemes, hops).lower()) in _SCHEMES:
            seen["scheme"] = scheme
        if host := _matching(_HOST, _at(said.hosts, hops)):
            seen["host"] = host
        return seen

    def _hops(self, addresses: Sequence[str]) -> int:
        """Count the proxies that are trusted, each because the next one says so."""
        trusted = 0
        for address in reversed(addresses):
            trusted += 1
            if not self._trusts(address):
                break
        return trusted


def root_path(request: web.Request, usual: str) -> str:
    """Give the path below which callers see us: what a trusted proxy says, else the usual one; empty for none."""
    return request.get(_ROOT_PATH) or root_of(usual)


def root_of(path: str) -> str:
    """Give a path with a slash before it and none behind; raises InvalidInput if it is none."""
    root = f"/{path.strip('/')}" if path.strip("/") else ""
    if not _ROOT.fullmatch(root):
        raise InvalidInput(f"{path!r} is no path, such as /embeddings", param="proxy_root_path")
    return root


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        message = f"{text!r} is no address or CIDR, such as 10.0.0.0/8, nor {_UNIX}"
        raise InvalidInput(message, param="trusted_proxy") from None


def _said(request: web.Request) -> _Said:
    """Read X-Forwarded-*, or, where there is none of it, Forwarded (RFC 7239)."""
    headers = request.headers
    if any(name in headers for name in _OURS):
        addresses, schemes, hosts = (_listed(headers.getall(name, ())) for name in _OURS[:3])
        return _Said([_address(each) for each in addresses], schemes, hosts)
    entries = request.forwarded
    return _Said(
        [_address(entry.get("for", "")) for entry in entries],
        [entry.get("proto", "") for entry in entries],
        [entry.get("host", "") for entry in entries],
    )


def _listed(values: Iterable[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",")]


def _address(text: str) -> str:
    """Take the port and brackets off an address."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _at(values: Sequence[str], hops: int) -> str:
    """Give what the first of so many proxies said; some replace what came before, so there may be fewer."""
    return values[-min(max(hops, 1), len(values))] if values else ""


def _matching(pattern: re.Pattern[str], text: str) -> str:
    return text if pattern.fullmatch(text) else ""
