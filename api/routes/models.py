"""GET /models: what is served, by whom, and what waits."""

import time
from dataclasses import asdict
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.ability import capabilities
from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.asking import visible_models
from infinity_pool.api.described import described
from infinity_pool.api.keys import CLIENT, SETTINGS
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.callers import LIMITS
from infinity_pool.broker.errors import ModelNotFound
from infinity_pool.broker.messages import Lane
from infinity_pool.broker.presence import ModelStatus, Waiting, WorkerInfo, merged

routes = web.RouteTableDef()

_STARTED = int(time.time())


class Limits(BaseModel):
    """How long an item may be in tokens and characters, and how many make a request and a batch; 0: no bound."""

    max_length: int
    max_chars: int
    max_items: int
    batch_tokens: int


class Stats(BaseModel):
    """What waits, under Infinity's names."""

    queue_fraction: float = Field(description="The part of what may wait in the online lane that does.")
    queue_absolute: int = Field(description="Items that wait in both lanes.")
    results_pending: int = Field(description="Requests whose answer this replica awaits, of all models.")
    batch_size: int = Field(description="Tokens in one batch.")


class Model(BaseModel):
    """A model that is served, or was within a day."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["infinity"]
    ready: bool
    backend: str
    stats: Stats
    capabilities: list[str]
    modalities: list[str]
    family: str
    engine: str
    device: str
    dtype: str
    dimensions: int | None
    fingerprint: str
    licence: str = Field(description="As the model's own card names it.")
    limits: Limits
    queue: dict[Lane, Waiting]
    workers: list[WorkerInfo]


class KeyLimits(BaseModel):
    """What the caller's key may ask for; 0: no limit."""

    requests_per_minute: int
    tokens_per_minute: int
    concurrent_items: int
    tokens_per_day: int
    tokens_per_month: int


class ModelList(BaseModel):
    """All that the caller's key is for, and its limits, if it has any."""

    object: Literal["list"]
    data: list[Model]
    key_limits: KeyLimits | None = None


@routes.get("/v1/models")
@routes.get("/models")
@described(gives=ModelList)
async def models(request: web.Request) -> web.Response:
    """List the models."""
    found = await visible_models(request)
    caller = request[CALLER]
    limits = {"key_limits": {name: getattr(caller, name) for name in LIMITS}} if caller.limited else {}
    return json_response({"object": "list", "data": [_about(model, request) for model in found], **limits})


@routes.get("/v1/models/{id:.+}")
@routes.get("/models/{id:.+}")
@described(gives=Model)
async def model(request: web.Request) -> web.Response:
    """Give one model: the only one for any name, as requests may call it by any, unless names are strict."""
    name = request.match_info["id"]
    found = {each.name: each for each in await visible_models(request)}
    if name not in found:
        served = [each for each in found.values() if each.workers]
        if len(served) == 1 and not request.app[SETTINGS].strict_model_names:
            return json_response(_about(served[0], request))
        raise ModelNotFound(
            f"no model {name[:256]!r} is served here; there is: {', '.join(found) or 'none'}", param="model"
        )
    return json_response(_about(found[name], request))


def _about(model: ModelStatus, request: web.Request) -> dict[str, Any]:
    """Give OpenAI's four fields, and what only we know; workers of one name are alike, so one speaks for all."""
    speaker = merged(model.workers) or next(iter(model.workers), WorkerInfo(id="", model=model.name))
    settings = request.app[SETTINGS]
    return {
        "id": model.name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "infinity",
        "ready": model.ready,
        "backend": speaker.engine,
        "stats": {
            "queue_fraction": model.waiting["online"].items / settings.max_queue_items,
            "queue_absolute": sum(waiting.items for waiting in model.waiting.values()),
            "results_pending": request.app[CLIENT].waiting,
            "batch_size": speaker.batch_tokens,
        },
        "capabilities": capabilities(speaker),
        "modalities": speaker.modalities,
        "family": speaker.family,
        "engine": speaker.engine,
        "device": ", ".join(sorted({worker.device for worker in model.workers})),
        "dtype": speaker.dtype,
        "dimensions": speaker.dimensions,
        "fingerprint": speaker.fingerprint,
        "licence": speaker.licence,
        "limits": {
            "max_length": speaker.max_length,
            "max_chars": speaker.max_chars,
            "max_items": settings.max_items,
            "batch_tokens": speaker.batch_tokens,
        },
        "queue": {lane: asdict(waiting) for lane, waiting in model.waiting.items()},
        "workers": [asdict(worker) for worker in model.workers],
    }
