"""POST /rerank: documents by how well they answer a query."""

from typing import Annotated, Any, Literal, cast

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.ability import check_ability
from infinity_pool.api.asking import Asked
from infinity_pool.api.described import described
from infinity_pool.api.scoring import ScoringBody, scored_response
from infinity_pool.api.shapes import Answer
from infinity_pool.broker.answers import ranked
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

routes = web.RouteTableDef()


class RerankBody(ScoringBody):
    """What is asked for; an `instruction` is for language models, which others refuse."""

    query: str
    documents: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False
    instruction: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        return super().options | ({} if self.instruction is None else {"instruction": self.instruction})


class RankedDocument(BaseModel):
    """A document's place in the request, and how well it answers the query."""

    relevance_score: float
    index: int
    document: str | None


class RerankAnswer(Answer):
    """The documents, the best first."""

    object: Literal["rerank"]
    results: list[RankedDocument]


@routes.post("/v1/rerank")
@routes.post("/rerank")
@described(takes=RerankBody, gives=RerankAnswer)
async def rerank(request: web.Request) -> web.Response:
    """Rank documents, the best first."""
    asked = Asked(request)
    body = await asked.read(RerankBody, "rerank")
    model, documents = body.model, body.documents
    asked.check_count(documents, "documents")
    _check_size(body, asked.settings.max_body)
    worker = await asked.worker(model)
    check_ability(worker, "rerank")
    lane = asked.lane(len(documents), online=True)
    pairs = [[body.query, document] for document in documents]
    result = await asked.run(model, "rerank", pairs, body.options, lane, "documents")
    best = ranked(cast(Array, result.outputs), body.top_n)
    texts = documents if body.return_documents else [None] * len(documents)
    found = [{"relevance_score": one.score, "index": one.index, "document": texts[one.index]} for one in best]
    return scored_response("rerank", {"results": found}, model, result, worker)


def _check_size(body: RerankBody, limit: int) -> None:
    """Bound what is queued, as the query is with each document: all of it must fit into a body."""
    chars, count = len(body.query), len(body.documents)
    if chars * count > limit:
        message = f"query: {chars} characters for each of {count} documents are over {limit} in all"
        raise InvalidInput(message, param="query")
