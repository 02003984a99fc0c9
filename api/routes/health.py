"""GET /health: this process lives. GET /ready: requests can be answered."""

import time

from aiohttp import web

from infinity_pool.api.auth import public
from infinity_pool.api.keys import READINESS
from infinity_pool.api.rendering import json_response

routes = web.RouteTableDef()

_YES = ("1", "true", "yes")


@routes.get("/v1/health")
@routes.get("/health")
@public
async def health(request: web.Request) -> web.Response:
    """Tell that this process lives, whatever the state of the queue and the models."""
    return json_response({"status": "ok", "unix": time.time()})


@routes.get("/v1/ready")
@routes.get("/ready")
@public
async def ready(request: web.Request) -> web.Response:
    """
    Answer 200 if requests can be answered now, else 503, and say what is missing.

    `?model=M` asks for one model, `?deep=1` runs a job through each.
    """
    deep = request.query.get("deep", "").lower() in _YES
    report = await request.app[READINESS].report(request.query.get("model"), deep=deep)
    return json_response(report._asdict(), status=200 if report.ready else 503)
