"""POST /sparse: texts to the places of a vocabulary that they have weight in."""

from typing import Literal, cast

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.asking import Asked
from infinity_pool.api.bodies.cutting import CUTTING, CuttingBody
from infinity_pool.api.described import described
from infinity_pool.api.listing import list_response, sparse_pieces
from infinity_pool.api.rendering import usage_of
from infinity_pool.api.shapes import Usage
from infinity_pool.api.texts import TextsOrIds
from infinity_pool.broker.messages import Array

routes = web.RouteTableDef()

_OPTIONS = {"top_k", "prompt", "prompt_name", "input_type", *CUTTING}


class SparseBody(CuttingBody):
    """What is asked for; `top_k` keeps the heaviest places of each text."""

    input: TextsOrIds
    top_k: int | None = Field(None, ge=1, le=2**20)
    prompt: str | None = None
    prompt_name: str | None = None
    input_type: Literal["query", "document"] | None = None


class SparseVector(BaseModel):
    """A text's places in the vocabulary, rising, and their weights."""

    object: Literal["sparse"]
    index: int
    indices: list[int]
    values: list[float]


class SparseAnswer(BaseModel):
    """Sparse vectors, in the order of their texts."""

    object: Literal["list"]
    data: list[SparseVector]
    model: str
    usage: Usage


@routes.post("/v1/sparse")
@routes.post("/sparse")
@described(takes=SparseBody, gives=SparseAnswer)
async def sparse(request: web.Request) -> web.Response:
    """Give each text's indices, rising, and their values."""
    asked = Asked(request)
    body = await asked.read(SparseBody, "sparse")
    asked.check_count(body.input, "input")
    options = body.model_dump(include=_OPTIONS, exclude_none=True)
    result = await asked.run(body.model, "sparse", body.input, options, asked.lane(body.model, body.input))
    vectors = cast(list[list[Array]], result.outputs)
    about = {"model": body.model, "usage": usage_of(result)}
    numbers = 2 * sum(len(values) for _, values in vectors)
    return list_response(sparse_pieces(vectors), numbers, about, asked.headers(body.model, result))
