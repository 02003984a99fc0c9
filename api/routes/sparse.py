"""POST /sparse: texts to the places of a vocabulary that they have weight in."""

from typing import Literal, cast

from aiohttp import web
from pydantic import Field

from infinity_pool.api.asking import Asked
from infinity_pool.api.listing import list_response, sparse_pieces
from infinity_pool.api.reading import Body, Truncate, read
from infinity_pool.api.rendering import usage_of
from infinity_pool.api.texts import Name, Texts
from infinity_pool.broker.messages import Array

routes = web.RouteTableDef()

_OPTIONS = {"top_k", "prompt", "prompt_name", "input_type", "truncate"}


class SparseBody(Body):
    """What is asked for; `top_k` keeps the heaviest places of each text."""

    model: Name
    input: Texts
    top_k: int | None = Field(None, ge=1, le=2**20)
    prompt: str | None = None
    prompt_name: str | None = None
    input_type: Literal["query", "document"] | None = None
    truncate: Truncate = None


@routes.post("/v1/sparse")
@routes.post("/sparse")
async def sparse(request: web.Request) -> web.Response:
    """Give each text's indices, rising, and their values."""
    asked = Asked(request)
    body = await read(request, SparseBody, asked.deadline.left("online"))
    asked.check_count(body.input, "input")
    options = body.model_dump(include=_OPTIONS, exclude_none=True)
    result = await asked.run(body.model, "sparse", body.input, options, asked.lane(len(body.input)))
    vectors = cast(list[list[Array]], result.outputs)
    about = {"model": body.model, "usage": usage_of(result)}
    numbers = 2 * sum(len(values) for _, values in vectors)
    return list_response(sparse_pieces(vectors), numbers, about, asked.headers(body.model, result))
