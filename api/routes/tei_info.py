"""GET /info, as text-embeddings-inference has it: one model and its limits."""

from importlib.metadata import version
from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.asking import visible_models
from infinity_pool.api.described import described
from infinity_pool.api.dialects import tei
from infinity_pool.api.keys import SETTINGS
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.errors import ModelNotFound
from infinity_pool.broker.presence import ModelStatus, WorkerInfo, merged

routes = web.RouteTableDef()


class InfoQuery(BaseModel):
    """Which model."""

    model: str | None = Field(None, description="One of those that are served, where there are several.")


class Labels(BaseModel):
    """What a model's scores are of."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class Pooling(BaseModel):
    """How a model's vectors are made, where it is splade; else that is the model's own business."""

    pooling: str | None


class ModelType(BaseModel):
    """What a model is made for: one of these."""

    embedding: Pooling | None = None
    classifier: Labels | None = None
    reranker: Labels | None = None


class Info(BaseModel):
    """A model and its limits; what is null has no meaning here, or no bound."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: ModelType
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int | None
    version: str
    sha: str | None
    docker_label: str | None
    licence: str = Field(description="As the model's own card names it; text-embeddings-inference has no such field.")


@routes.get("/info")
@described(gives=Info, query=InfoQuery, dialect=tei, also=((404, tei.ErrorAnswer), (503, tei.ErrorAnswer)))
async def info(request: web.Request) -> web.Response:
    """Tell of the only model, or of the one that is named."""
    worker = _worker(await visible_models(request), request.query.get("model"))
    settings = request.app[SETTINGS]
    about = {
        "model_id": worker.model,
        "model_sha": None,
        "model_dtype": worker.dtype,
        "served_model_name": worker.model,
        "model_type": _kind(worker),
        "max_concurrent_requests": settings.max_queue_items,
        "max_input_length": worker.max_length,
        "max_batch_tokens": worker.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_items,
        "auto_truncate": True,
        "tokenization_workers": None,
        "version": version("infinity-pool"),
        "sha": None,
        "docker_label": None,
        "licence": worker.licence,
    }
    return json_response(about)


def _worker(models: list[ModelStatus], name: str | None) -> WorkerInfo:
    served = {model.name: merged(model.workers) for model in models if model.workers}
    if name is None and len(served) == 1:
        name = next(iter(served))
    worker = served.get(name or "")
    if worker is None:
        there = ", ".join(served) or "none"
        what = f"no model {name[:256]!r} is ready" if name else "say which with ?model=NAME"
        raise ModelNotFound(f"{what}; there is: {there}", param="model")
    return worker


def _kind(worker: WorkerInfo) -> dict[str, Any]:
    """Give a model's kind, without those that it is not."""
    labels: dict[str, Any] = {"id2label": {str(place): label for place, label in enumerate(worker.labels)}}
    labels["label2id"] = {label: place for place, label in enumerate(worker.labels)}
    if "rerank" in worker.tasks:
        return {"reranker": labels}
    if "classify" in worker.tasks:
        return {"classifier": labels}
    return {"embedding": {"pooling": "splade" if worker.tasks == ["sparse"] else None}}
