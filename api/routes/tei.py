"""
text-embeddings-inference's endpoints for vectors and labels, whose answers are bare lists.

POST /embed, /embed_all, /embed_sparse, /similarity and /predict; POST / and /invocations are the one of these that a
model is made for.
"""

from typing import Any, cast

import numpy as np
from aiohttp import web
from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

from infinity_pool.api.asking import visible_models
from infinity_pool.api.bodies.reading import Body, Dimensions, ModelBody
from infinity_pool.api.comparing import cosine, plain_numbers
from infinity_pool.api.described import described
from infinity_pool.api.dialects import tei
from infinity_pool.api.labelling import LabelScore, TextsOrPairs, named_labels
from infinity_pool.api.listing import bare_response, pair_pieces, plain_matrix_pieces, row_pieces
from infinity_pool.api.rendering import json_response
from infinity_pool.api.tei import CutBody, Direction, InputsBody, Timed, side_of
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import WorkerInfo

routes = web.RouteTableDef()


class EmbedBody(InputsBody):
    """What is asked for; vectors are cut to `dimensions`, then made of length 1."""

    normalize: bool = True
    dimensions: Dimensions = None


@routes.post("/embed")
@described(takes=EmbedBody, gives=list[list[float]], dialect=tei)
async def embed(request: web.Request) -> web.Response:
    """Embed texts: a vector each."""
    asked = Timed(request)
    body = await asked.read(EmbedBody, "embed")
    worker = await asked.worker(body.model)
    options = body.options | {"normalize": body.normalize} | plain_numbers(worker)
    options |= {} if body.dimensions is None else {"dimensions": body.dimensions}
    result = await asked.run_inputs(body.model, "embed", body.inputs, options)
    rows = np.asarray(result.outputs)
    return bare_response(row_pieces(rows), rows.size, asked.told(body.model, body.inputs, result))


@routes.post("/embed_all")
@described(takes=InputsBody, gives=list[list[list[float]]], dialect=tei)
async def embed_all(request: web.Request) -> web.Response:
    """
    Embed the tokens of texts: a list of vectors each.

    These are the matrices of models that compare such, and what others have before pooling.
    """
    asked = Timed(request)
    body = await asked.read(InputsBody, "embed")
    worker = await asked.worker(body.model)
    matrices = "multivector" in worker.tasks
    task, pooling = ("multivector", {}) if matrices else ("embed", {"pooling": "none"})
    options = body.options | pooling | plain_numbers(worker)
    result = await asked.run_inputs(body.model, task, body.inputs, options)
    numbers = sum(matrix.size for matrix in result.outputs)
    pieces = plain_matrix_pieces(result.outputs)
    return bare_response(pieces, numbers, asked.told(body.model, body.inputs, result))


class SparseValue(BaseModel):
    """A place in the vocabulary, and the weight there."""

    index: int
    value: float


@routes.post("/embed_sparse")
@described(takes=InputsBody, gives=list[list[SparseValue]], dialect=tei)
async def embed_sparse(request: web.Request) -> web.Response:
    """Give the places of the vocabulary that texts have weight in."""
    asked = Timed(request)
    body = await asked.read(InputsBody, "sparse")
    result = await asked.run_inputs(body.model, "sparse", body.inputs, body.options)
    vectors = cast(list[list[Array]], result.outputs)
    numbers = 2 * sum(len(values) for _, values in vectors)
    return bare_response(pair_pieces(vectors), numbers, asked.told(body.model, body.inputs, result))


class Sides(Body):
    """A text, and those that it is compared with."""

    source_sentence: str
    sentences: list[str] = Field(min_length=1)


class SimilarityParameters(Body):
    """How texts are embedded."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class SimilarityBody(CutBody):
    """What is asked for."""

    inputs: Sides
    parameters: SimilarityParameters | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        asked = self.parameters or SimilarityParameters()
        given = asked.model_dump(include={"truncate", "prompt_name"}, exclude_none=True)
        return super().options | given | side_of(asked.truncation_direction)


@routes.post("/similarity")
@described(takes=SimilarityBody, gives=list[float], dialect=tei)
async def similarity(request: web.Request) -> web.Response:
    """Give the cosine of each sentence with the source sentence."""
    asked = Timed(request)
    body = await asked.read(SimilarityBody, "embed")
    asked.check_count(body.inputs.sentences, "inputs.sentences")
    worker = await asked.worker(body.model)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    result = await _embedded(asked, body, texts, worker)
    first, *others = np.asarray(result.outputs)
    scores = cosine([first] * len(others), others)
    return bare_response(row_pieces(scores), scores.size, asked.told(body.model, texts, result))


async def _embedded(asked: Timed, body: SimilarityBody, texts: list[str], worker: WorkerInfo) -> Result:
    """Embed both sides in one job; an error names the side."""
    options = body.options | plain_numbers(worker)
    try:
        return await asked.run(body.model, "embed", texts, options, asked.lane(body.model, texts), "inputs")
    except InvalidInput as error:
        if error.item is None:
            raise
        if error.item == 0:
            raise type(error)(f"source_sentence: {error.message}", param="inputs.source_sentence") from error
        raise type(error)(error.message, param="inputs.sentences", item=error.item - 1) from error


class PredictBody(CutBody):
    """
    What is asked for: a text, a pair of two texts, or a list of lists of one or two.

    `raw_scores` are those before the model's activation.
    """

    inputs: TextsOrPairs
    raw_scores: bool = False
    parameters: dict[str, Any] | None = None

    @field_validator("parameters")
    @classmethod
    def _refuse(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for name, asked in (value or {}).items():
            if asked is not None:
                raise PydanticCustomError("parameters", "{name} is not taken; there is raw_scores", {"name": name})
        return value

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        return super().options | ({"raw_scores": True} if self.raw_scores else {})


@routes.post("/predict")
@described(takes=PredictBody, gives=list[LabelScore] | list[list[LabelScore]], dialect=tei)
async def predict(request: web.Request) -> web.Response:
    """Score all labels of a text, the best first; a list of lists has an answer each."""
    asked = Timed(request)
    body = await asked.read(PredictBody, "classify")
    worker = await asked.worker(body.model)
    items = body.inputs.items
    asked.check_count(items, "inputs")
    lane = asked.lane(body.model, items)
    result = await asked.run(body.model, "classify", items, body.options, lane, "inputs")
    data = await named_labels(cast(Array, result.outputs), worker.labels)
    return json_response(data[0] if body.inputs.alone else data, headers=asked.told(body.model, items, result))


class InputsOfAny(ModelBody):
    """What is asked for, as the endpoint for it has it."""

    inputs: Any


_MADE_FOR = {"embed": embed, "sparse": embed_sparse, "classify": predict}


@routes.post("/")
@routes.post("/invocations")
@described(takes=InputsOfAny, gives=list[Any], dialect=tei)
async def whichever(request: web.Request) -> web.StreamResponse:
    """Do what the only model is made for, as /embed, /embed_sparse or /predict do it, with the same fields."""
    served = {one.name: one.workers for one in await visible_models(request) if one.workers}
    only = next(iter(served)) if len(served) == 1 else ""  # then the body, which is read again, says nothing of it
    name = only or (await Timed(request).read(InputsOfAny)).model
    tasks = [task for worker in served.get(name, []) for task in worker.tasks]
    handler = next((_MADE_FOR[task] for task in tasks if task in _MADE_FOR), embed)
    return await handler(request)
