"""/batches, as OpenAI has it: the requests of a file, answered into another within a time."""

import re
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field, StringConstraints

from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.batches.owning import own_batch, own_file, owner_of, runner_of
from infinity_pool.api.batches.pages import Page, page_of
from infinity_pool.api.bodies.reading import Body, read, validated
from infinity_pool.api.described import described
from infinity_pool.api.dialects import openai
from infinity_pool.api.keys import SETTINGS
from infinity_pool.api.rendering import json_response
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker import batches
from infinity_pool.broker.batches import CANCELLABLE, Batch, Status
from infinity_pool.broker.errors import InvalidInput, NotFound

routes = web.RouteTableDef()

_DAY = 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": _DAY}
_WINDOW = re.compile(r"([1-9]\d{0,5})([smhd])", re.ASCII)
_REFUSED: tuple[tuple[int, Any], ...] = tuple((status, openai.ErrorAnswer) for status in (400, 503))

_Key = Annotated[str, StringConstraints(max_length=64)]
_Value = Annotated[str, StringConstraints(max_length=512)]


class ExpiresAfter(BaseModel):
    """How long files are kept."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=30 * _DAY)


class BatchBody(Body):
    """A batch of requests; `completion_window` is 24h or another time, as 30m or 7d."""

    input_file_id: str = Field(max_length=256)
    endpoint: str = Field(max_length=256, examples=["/v1/embeddings"])
    completion_window: str = Field(max_length=16, examples=["24h"])
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None


class Counts(BaseModel):
    """Requests."""

    total: int
    completed: int
    failed: int


class InputDetails(BaseModel):
    """Nothing is cached."""

    cached_tokens: Literal[0]


class OutputDetails(BaseModel):
    """Nothing is generated."""

    reasoning_tokens: Literal[0]


class BatchUsage(BaseModel):
    """The tokens that the completed requests had run so far."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: Literal[0]
    output_tokens_details: OutputDetails
    total_tokens: int


class BatchError(BaseModel):
    """What is wrong with a line of the input."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(BaseModel):
    """What is wrong with the input."""

    object: Literal["list"]
    data: list[BatchError]


class BatchObject(BaseModel):
    """A batch; times are in seconds since 1970."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: Counts
    usage: BatchUsage
    metadata: dict[str, str] | None


class BatchList(Page):
    """Some batches."""

    data: list[BatchObject]


class BatchesQuery(BaseModel):
    """Which batches."""

    limit: int = Field(20, ge=1, le=100, description="How many.")
    after: str | None = Field(None, description="The id after which to go on.")


@routes.post("/v1/batches")
@routes.post("/batches")
@described(takes=BatchBody, gives=BatchObject)
async def create(request: web.Request) -> web.Response:
    """Have the requests of a file answered."""
    settings = request.app[SETTINGS]
    body = await read(request, BatchBody, settings.timeout, settings.read_timeout)
    runner = runner_of(request)
    if body.endpoint not in runner.inside.endpoints:
        told = ", ".join(sorted(runner.inside.endpoints))
        raise InvalidInput(f"endpoint: batches are for {told}", param="endpoint")
    batch = _new(body, request[CALLER].name, settings)
    try:
        await own_file(request, body.input_file_id)
    except NotFound as error:
        raise NotFound(error.message, param="input_file_id") from None
    await batches.add(runner.redis, batch)
    runner.look_soon()
    return json_response(_told(batch))


@routes.get("/v1/batches")
@routes.get("/batches")
@described(gives=BatchList, query=BatchesQuery, also=_REFUSED)
async def listed(request: web.Request) -> web.Response:
    """List the caller's batches, or, if it may administer, all, the newest first."""
    query = validated(BatchesQuery, request.query)
    found, more = await batches.page(runner_of(request).redis, owner_of(request), query.after, query.limit)
    return json_response(page_of([*map(_told, found)], more is not None))


@routes.get("/v1/batches/{id}")
@routes.get("/batches/{id}")
@described(gives=BatchObject, also=_REFUSED)
async def get(request: web.Request) -> web.Response:
    """Tell how far a batch is."""
    return json_response(_told(await own_batch(request, request.match_info["id"])))


@routes.post("/v1/batches/{id}/cancel")
@routes.post("/batches/{id}/cancel")
@described(gives=BatchObject, also=_REFUSED)
async def cancel(request: web.Request) -> web.Response:
    """Stop a batch; what is answered by then is in its output."""
    batch = await own_batch(request, request.match_info["id"])
    if batch.status not in (*CANCELLABLE, "cancelling", "cancelled"):
        raise InvalidInput(f"{batch.id} is {batch.status}, and cannot be cancelled any more", param="batch_id")
    await batches.cancel(runner_of(request).redis, batch.id)
    return json_response(_told(await own_batch(request, batch.id)))


def _new(body: BatchBody, owner: str, settings: ApiSettings) -> Batch:
    seconds, now = _window(body.completion_window, settings.files_days), int(time.time())
    after = body.output_expires_after
    return Batch(
        id=batches.new_id(),
        owner=owner,
        input_file_id=body.input_file_id,
        endpoint=body.endpoint,
        completion_window=body.completion_window,
        created_at=now,
        expires_at=now + seconds,
        kept_until=now + seconds + int(settings.files_days * _DAY),
        metadata=body.metadata,
        output_seconds=after.seconds if after else None,
    )


def _window(text: str, most_days: float) -> int:
    """Give the seconds of a window; raises InvalidInput."""
    match = _WINDOW.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= most_days * _DAY:
        message = f"completion_window: a time such as 24h, 30m or 7d, up to {most_days:g} days"
        raise InvalidInput(message, param="completion_window")
    return seconds


def _told(batch: Batch) -> dict[str, Any]:
    known = asdict(batch)
    told = {name: known.get(name) for name in BatchObject.model_fields}
    counts = {name: known[name] for name in Counts.model_fields}
    errors = {"object": "list", "data": batch.errors} if batch.errors else None
    return told | {"object": "batch", "request_counts": counts, "usage": _usage(batch.tokens), "errors": errors}


def _usage(tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }
