"""POST /classify: the scores of a classifier's labels."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from aiohttp import web
from pydantic import BaseModel, Field, PlainValidator
from pydantic_core import PydanticCustomError

from infinity_pool.api.asking import Asked
from infinity_pool.api.described import described
from infinity_pool.api.scoring import ScoringBody, scored_response
from infinity_pool.api.shapes import Answer
from infinity_pool.broker.answers import labelled
from infinity_pool.broker.messages import Array

routes = web.RouteTableDef()

_SLICE = 2**13
"""Labels named at a time, some milliseconds' work; between two slices all other requests have their turn."""


def _text_or_pair(value: Any) -> str | list[str]:
    """Take a text, or two of which one follows from the other or not."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return value
    raise PydanticCustomError("text", "Input should be a text, or a pair of two texts")


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
"""Two texts, of which one follows from the other or not."""


class LabelScore(BaseModel):
    """A label, and how well it fits."""

    score: float
    label: str


class ClassifyAnswer(Answer):
    """All labels of each text, the best first."""

    object: Literal["classify"]
    data: list[list[LabelScore]]


class ClassifyBody(ScoringBody):
    """What is asked for."""

    input: Annotated[
        list[Annotated[str | list[str], PlainValidator(_text_or_pair, json_schema_input_type=str | Pair)]],
        Field(min_length=1, fail_fast=True),
    ]


@routes.post("/v1/classify")
@routes.post("/classify")
@described(takes=ClassifyBody, gives=ClassifyAnswer)
async def classify(request: web.Request) -> web.Response:
    """Score texts for all labels, the best first."""
    asked = Asked(request)
    body = await asked.read(ClassifyBody, "classify")
    asked.check_count(body.input, "input")
    worker = await asked.worker(body.model)
    lane = asked.lane(len(body.input), online=True)
    result = await asked.run(body.model, "classify", body.input, body.options, lane)
    data = await _named(cast(Array, result.outputs), worker.labels)
    return scored_response("classify", {"data": data}, body.model, result, worker)


async def _named(scores: Array, labels: Sequence[str]) -> list[list[dict[str, Any]]]:
    data: list[list[dict[str, Any]]] = []
    step = max(1, _SLICE // scores.shape[1])
    for first in range(0, len(scores), step):
        if first:
            await asyncio.sleep(0)
        rows = labelled(scores[first : first + step], labels)
        data += [[{"score": one.score, "label": one.label} for one in row] for row in rows]
    return data
