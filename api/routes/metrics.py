"""GET /metrics, for Prometheus."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from infinity_pool.api.access.auth import public
from infinity_pool.api.described import described
from infinity_pool.api.keys import METRICS

routes = web.RouteTableDef()


@routes.get("/metrics")
@public
@described(gives="text/plain")
async def metrics(request: web.Request) -> web.Response:
    """Give all counts and gauges in Prometheus's text format."""
    return web.Response(body=request.app[METRICS].exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})
