"""GET /models: what is served, by whom, and what waits."""

import time
from dataclasses import asdict
from typing import Any

from aiohttp import web

from infinity_pool.api.ability import capabilities
from infinity_pool.api.keys import CLIENT, SETTINGS
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.errors import ModelNotFound
from infinity_pool.broker.presence import ModelStatus, WorkerInfo, merged

routes = web.RouteTableDef()

_STARTED = int(time.time())


@routes.get("/v1/models")
@routes.get("/models")
async def models(request: web.Request) -> web.Response:
    """List the models."""
    found = await request.app[CLIENT].models()
    limit = request.app[SETTINGS].max_items
    return json_response({"object": "list", "data": [_described(model, limit) for model in found]})


@routes.get("/v1/models/{id:.+}")
@routes.get("/models/{id:.+}")
async def model(request: web.Request) -> web.Response:
    """Give one model."""
    name = request.match_info["id"]
    found = {each.name: each for each in await request.app[CLIENT].models()}
    if name not in found:
        raise ModelNotFound(
            f"no model {name[:256]!r} is served here; there is: {', '.join(found) or 'none'}", param="model"
        )
    return json_response(_described(found[name], request.app[SETTINGS].max_items))


def _described(model: ModelStatus, max_items: int) -> dict[str, Any]:
    """Give OpenAI's four fields, and what only we know; workers of one name are alike, so one speaks for all."""
    speaker = merged(model.workers) or next(iter(model.workers), WorkerInfo(id="", model=model.name))
    return {
        "id": model.name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "infinity",
        "ready": model.ready,
        "capabilities": capabilities(speaker),
        "modalities": speaker.modalities,
        "family": speaker.family,
        "engine": speaker.engine,
        "device": ", ".join(sorted({worker.device for worker in model.workers})),
        "dtype": speaker.dtype,
        "dimensions": speaker.dimensions,
        "fingerprint": speaker.fingerprint,
        "limits": {
            "max_length": speaker.max_length,
            "max_chars": speaker.max_chars,
            "max_items": max_items,
            "batch_tokens": speaker.batch_tokens,
        },
        "queue": {lane: asdict(waiting) for lane, waiting in model.waiting.items()},
        "workers": [asdict(worker) for worker in model.workers],
    }
