"""The port for those who run a replica, and where callers find the API itself."""

import re

from aiohttp import web
from aiohttp.typedefs import Handler

from infinity_pool.api.access.auth import is_public
from infinity_pool.api.network.proxies import root_path
from infinity_pool.api.settings import HttpSettings

_PORT = re.compile(r":\d*$")


class AdminPort:
    """The application's middleware, `answer`: what needs no key is on one port, all else on the other."""

    def __init__(self, port: int) -> None:
        self._port = port

    @web.middleware
    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer on the right port; /health is on both, as who balances the load asks each where it sends it."""
        on_both = request.path.endswith("/health")
        if not on_both and _came_by(request, self._port) != is_public(request.match_info.handler):
            raise web.HTTPNotFound
        return await handler(request)


def api_url(request: web.Request, settings: HttpSettings) -> str:
    """Give the URL below which the caller finds the API; its host is as the caller wrote it, which may be anything."""
    host = request.host
    if settings.admin_port and _came_by(request, settings.admin_port):
        host = f"{_PORT.sub('', host)}:{settings.port}"
    return f"{request.scheme}://{host}{root_path(request, settings.proxy_root_path)}"


def _came_by(request: web.Request, port: int) -> bool:
    place = request.transport.get_extra_info("sockname") if request.transport else None
    return isinstance(place, tuple) and place[1] == port
