"""GET /health: this process lives. GET /ready: requests can be answered."""

import time
from dataclasses import asdict

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.access.auth import public
from infinity_pool.api.described import described
from infinity_pool.api.keys import READINESS
from infinity_pool.api.readiness import Report
from infinity_pool.api.rendering import json_response

routes = web.RouteTableDef()

_YES = ("1", "true", "yes")


class Health(BaseModel):
    """This process lives."""

    status: str
    unix: float = Field(description="Seconds since 1970.")


class ReadyQuery(BaseModel):
    """Which model, and how closely."""

    model: str | None = Field(None, description="Ask for this one model.")
    deep: str = Field("", description="1, true or yes: run a job through each.")


@routes.get("/v1/health")
@routes.get("/health")
@routes.get("/ping")
@public
@described(gives=Health)
async def health(request: web.Request) -> web.Response:
    """Tell that this process lives, whatever the state of the queue and the models."""
    return json_response({"status": "ok", "unix": time.time()})


@routes.get("/v1/ready")
@routes.get("/ready")
@public
@described(gives=Report, query=ReadyQuery, also=((503, Report),))
async def ready(request: web.Request) -> web.Response:
    """
    Answer 200 if requests can be answered now, else 503, and say what is missing.

    `?model=M` asks for one model, `?deep=1` runs a job through each.
    """
    deep = request.query.get("deep", "").lower() in _YES
    report = await request.app[READINESS].report(request.query.get("model"), deep=deep)
    return json_response(asdict(report), status=200 if report.ready else 503)
