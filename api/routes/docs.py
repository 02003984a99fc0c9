"""GET /openapi.json, what there is to ask; GET /docs, the same to read and to try, from files of our own."""

from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from aiohttp import web

from infinity_pool.api.access.auth import public
from infinity_pool.api.described import described
from infinity_pool.api.keys import SETTINGS
from infinity_pool.api.network.admin import api_url
from infinity_pool.api.network.proxies import root_path
from infinity_pool.api.openapi import document
from infinity_pool.api.rendering import json_response

routes = web.RouteTableDef()

_OURS = files("infinity_pool.api")
_THEIRS = Path(*(getattr(find_spec("swagger_ui"), "submodule_search_locations", None) or [""])) / "static"
"""The files of Swagger UI; the package around them is not imported, which would take much and give nothing."""
_PAGE = (_OURS / "docs.html").read_bytes()
_FILES = {
    "start.js": _OURS / "docs.js",
    "swagger-ui.css": _THEIRS / "swagger-ui.css",
    "swagger-ui-bundle.js": _THEIRS / "swagger-ui-bundle.js",
}
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
_HEADERS = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}


@routes.get("/v1/openapi.json")
@routes.get("/openapi.json")
@public
@described(gives=dict[str, Any])
async def openapi(request: web.Request) -> web.Response:
    """Describe all paths, as OpenAPI 3.1."""
    settings = request.app[SETTINGS]
    here = root_path(request, settings.proxy_root_path) or "/"
    url = api_url(request, settings) if settings.admin_port else here
    return json_response(_document(request.app) | {"servers": [{"url": url}]})


@routes.get("/v1/docs")
@routes.get("/docs")
@public
async def docs(request: web.Request) -> web.Response:
    """Show the description, with a form to try each path."""
    return web.Response(body=_PAGE, content_type="text/html", charset="utf-8", headers=_HEADERS)


@routes.get("/v1/docs/{file}")
@routes.get("/docs/{file}")
@public
async def docs_file(request: web.Request) -> web.Response:
    """Give a file of the page."""
    name = request.match_info["file"]
    if name not in _FILES:
        raise web.HTTPNotFound
    kind, _ = guess_type(name)
    return web.Response(body=_FILES[name].read_bytes(), content_type=kind, charset="utf-8", headers=_HEADERS)


@lru_cache(1)
def _document(app: web.Application) -> dict[str, Any]:
    return document(app, version("infinity-pool"))
