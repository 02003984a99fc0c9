"""GET /health: this process lives. GET /ready: requests can be answered."""

import time

from aiohttp import web

from infinity_pool.api.auth import public
from infinity_pool.api.keys import CLIENT
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.presence import ModelStatus

routes = web.RouteTableDef()


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
    """Answer 200 if every model has a worker that is ready, else 503, naming those that have none."""
    models = await request.app[CLIENT].models()
    missing = {model.name: _excuse(model) for model in models if not model.ready}
    good = bool(models) and not missing
    return json_response({"ready": good, "models": len(models), "not_ready": missing}, status=200 if good else 503)


def _excuse(model: ModelStatus) -> str:
    stages = sorted(worker.stage or worker.state for worker in model.workers)
    return ", ".join(stages) or "no worker is alive"
