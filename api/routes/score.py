"""
POST /score, as vLLM has it: how well texts fit each other, in pairs.

A reranker gives its own score of a pair, a model of matrices MaxSim (for each vector of the first text the largest dot
product with one of the second, summed), and a model of vectors their cosine.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from aiohttp import web
from pydantic import AliasChoices, BaseModel, Field, model_validator

from infinity_pool.api.asking import Asked, named, together
from infinity_pool.api.bodies.cutting import CUTTING
from infinity_pool.api.bodies.reading import Dimensions
from infinity_pool.api.comparing import cosine, max_sim, plain_numbers
from infinity_pool.api.described import described
from infinity_pool.api.rendering import json_response, usage_of
from infinity_pool.api.shapes import Listed
from infinity_pool.api.texts import Texts
from infinity_pool.api.vllm import VllmBody
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item, Result
from infinity_pool.broker.presence import WorkerInfo

routes = web.RouteTableDef()

_OPTIONS = {"raw_scores", "dimensions", *CUTTING}
_NAMES = {"text_1": ("text_1", "queries", "data_1"), "text_2": ("text_2", "documents", "items", "data_2")}
_SIDES = {"query": {"input_type": "query"}, "document": {"input_type": "document"}}
_PLAIN: dict[str, dict[str, Any]] = {"query": {}, "document": {}}


class ScoreBody(VllmBody):
    """
    What is asked for: as many texts on both sides, or one on the first.

    The second side may be images, as data URIs, base64 alone or URLs, for models that take them.
    """

    text_1: Texts = Field(validation_alias=AliasChoices(*_NAMES["text_1"]))
    text_2: Texts = Field(validation_alias=AliasChoices(*_NAMES["text_2"]))
    task: Literal["rerank", "multivector", "embed"] | None = None
    modality: Literal["text", "image"] = "text"
    raw_scores: bool = False
    dimensions: Dimensions = None

    @model_validator(mode="before")
    @classmethod
    def _one_name_a_side(cls, value: Any) -> Any:
        """Refuse a side that is given twice, of which one would be passed over."""
        for names in _NAMES.values():
            given = [name for name in names if isinstance(value, dict) and name in value]
            if len(given) > 1:
                raise InvalidInput(f"give {' or '.join(given)}, which are names of the same side", param=given[1])
        return value

    def options(self, *names: str) -> dict[str, Any]:
        """Give those options that were asked for; raises InvalidInput for one that the task has not."""
        given = self.model_dump(include=_OPTIONS, exclude_none=True, exclude_defaults=True)
        if self.use_activation is False:
            given["raw_scores"] = True
        for name in given.keys() - set(names):
            raise InvalidInput(f"{name} is none of what this model scores by", param=name)
        return given


class PairScore(BaseModel):
    """How well a pair fits."""

    object: Literal["score"]
    index: int
    score: float


class ScoreAnswer(Listed):
    """Scores, in the order of the pairs."""

    data: list[PairScore]


@routes.post("/v1/score")
@routes.post("/score")
@described(takes=ScoreBody, gives=ScoreAnswer)
async def score(request: web.Request) -> web.Response:
    """Score pairs, in order."""
    asked = Asked(request)
    body = await asked.read(ScoreBody)
    asked.check_count(body.text_1, "text_1")
    asked.check_count(body.text_2, "text_2")
    if len(body.text_1) not in (1, len(body.text_2)):
        message = f"text_1: {len(body.text_1)} texts for {len(body.text_2)}; there must be one, or as many"
        raise InvalidInput(message, param="text_1")
    task = body.task or _task_of(await asked.worker(body.model))
    scores, results = await (_reranked(asked, body) if task == "rerank" else _compared(asked, body, task))
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)]
    about = named("score", body.model) | {"object": "list", "data": data, "usage": usage_of(*results)}
    return json_response(about, headers=asked.headers(body.model, *results))


def _task_of(worker: WorkerInfo) -> str:
    """Choose the first of a model's tasks that pairs can be scored by."""
    for task in worker.tasks:
        if task in ("rerank", "multivector", "embed"):
            return task
    raise InvalidInput(f"model {worker.model!r} cannot score, only {', '.join(worker.tasks)}", param="model")


async def _reranked(asked: Asked, body: ScoreBody) -> tuple[Array, list[Result]]:
    """Let a reranker read the pairs; one first text is queued with each second, so all of it must fit into a body."""
    if body.modality != "text":
        raise InvalidInput(f"a reranker takes texts, not {body.modality}", param="modality")
    if len(body.text_1) == 1 and len(body.text_1[0]) * len(body.text_2) > asked.settings.max_body:
        message = f"text_1: its {len(body.text_1[0])} characters for {len(body.text_2)} texts are too many"
        raise InvalidInput(message, param="text_1")
    options = body.options("raw_scores", *CUTTING)
    pairs = [list(pair) for pair in zip(_repeated(body.text_1, len(body.text_2)), body.text_2, strict=True)]
    result = await asked.run(body.model, "rerank", pairs, options, asked.lane(body.model, pairs), "text_2")
    return np.asarray(result.outputs, np.float32).reshape(len(pairs)), [result]


async def _compared(asked: Asked, body: ScoreBody, task: str) -> tuple[Array, list[Result]]:
    """Compare what a model makes of each side by itself."""
    sides = _SIDES if task == "multivector" and asked.takes_only_texts(body.model) else _PLAIN
    items: list[Item] = list(body.text_2)
    common = body.options("dimensions", *CUTTING) | plain_numbers(asked.known(body.model))
    options = common | sides["document"]
    if body.modality != "text":
        asked.check_scope(body.model, task, items)
        items = await asked.files(body.model, body.text_2, "text_2")
        options = common | {"modality": body.modality}
    lane = asked.lane(body.model, items)
    first, second = await together(
        asked.run(body.model, task, body.text_1, common | sides["query"], lane, "text_1"),
        asked.run(body.model, task, items, options, lane, "text_2"),
    )
    queries = _repeated(list(first.outputs), len(items))
    compare = max_sim if task == "multivector" else cosine
    return await asyncio.to_thread(compare, queries, list(second.outputs)), [first, second]


def _repeated(values: Sequence[Any], count: int) -> Sequence[Any]:
    return [values[0]] * count if len(values) == 1 else values
