"""POST /embeddings, as OpenAI has it."""

from typing import Annotated, Any

from aiohttp import web
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from infinity_pool.api.deadline import Deadline
from infinity_pool.api.keys import CLIENT, METRICS, SETTINGS
from infinity_pool.api.reading import Body, lane_of, read
from infinity_pool.api.rendering import Encoding, embeddings_response
from infinity_pool.broker.errors import InvalidInput

routes = web.RouteTableDef()


def _as_list(value: Any) -> Any:
    """Let one text stand for a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and _are_token_ids(value):
        raise PydanticCustomError("token_ids", "token ids are not taken, send the text itself")
    return value


def _are_token_ids(value: list[Any]) -> bool:
    first = value[0] if value else None
    return type(first) is int or (isinstance(first, list) and _are_token_ids(first[:1]))


class EmbeddingsBody(Body):
    """What is asked for."""

    model: str = Field(min_length=1, max_length=256)
    input: Annotated[list[str], Field(min_length=1, fail_fast=True), BeforeValidator(_as_list)]
    encoding_format: Encoding | None = None
    dimensions: int | None = Field(None, ge=1, le=2**20)
    user: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        return {} if self.dimensions is None else {"dimensions": self.dimensions}


@routes.post("/v1/embeddings")
@routes.post("/embeddings")
async def embeddings(request: web.Request) -> web.Response:
    """Embed texts."""
    app = request.app
    client, settings = app[CLIENT], app[SETTINGS]
    deadline = Deadline(request, settings)
    body = await read(request, EmbeddingsBody, deadline.left("online"))
    if len(body.input) > settings.max_items:
        raise InvalidInput(f"input: {len(body.input)} items, {settings.max_items} are allowed", param="input")
    lane = lane_of(request, "online" if len(body.input) <= settings.online_max_items else "bulk")
    result = await client.submit(
        body.model, "embed", body.input, options=body.options, lane=lane, timeout=deadline.left(lane)
    )
    app[METRICS].ran(body.model, "embed", len(body.input), result)
    return embeddings_response(body.model, result, body.encoding_format or "float", client.best(body.model))
