"""POST /classify: the scores of a classifier's labels."""

from typing import Annotated, Literal, cast

from aiohttp import web
from pydantic import BeforeValidator, Field

from infinity_pool.api.asking import Asked
from infinity_pool.api.described import described
from infinity_pool.api.labelling import LabelScore, TextOrPair, named_labels
from infinity_pool.api.scoring import ScoringBody, scored_response
from infinity_pool.api.shapes import Answer
from infinity_pool.api.texts import as_list
from infinity_pool.broker.messages import Array

routes = web.RouteTableDef()


class ClassifyAnswer(Answer):
    """All labels of each text, the best first."""

    object: Literal["classify"]
    data: list[list[LabelScore]]


class ClassifyBody(ScoringBody):
    """What is asked for."""

    input: Annotated[
        list[TextOrPair],
        Field(min_length=1, fail_fast=True),
        BeforeValidator(as_list, json_schema_input_type=str | list[TextOrPair]),
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
    lane = asked.lane(body.model, body.input)
    result = await asked.run(body.model, "classify", body.input, body.options, lane)
    data = await named_labels(cast(Array, result.outputs), worker.labels)
    return scored_response("classify", {"data": data}, body.model, result, worker)
