"""GET /version and /load, which vLLM's users ask for."""

from importlib.metadata import version as version_of

from aiohttp import web
from pydantic import BaseModel

from infinity_pool.api.access.auth import public
from infinity_pool.api.described import described
from infinity_pool.api.keys import CLIENT
from infinity_pool.api.rendering import json_response

routes = web.RouteTableDef()


class Version(BaseModel):
    """The version of this server."""

    version: str


class Load(BaseModel):
    """How many jobs await their answer at this replica."""

    server_load: int


@routes.get("/version")
@public
@described(gives=Version)
async def version(request: web.Request) -> web.Response:
    """Tell this server's version."""
    return json_response({"version": version_of("infinity-pool")})


@routes.get("/load")
@described(gives=Load)
async def load(request: web.Request) -> web.Response:
    """Count the jobs in hand."""
    return json_response({"server_load": request.app[CLIENT].waiting})
