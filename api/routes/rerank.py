"""POST /rerank: documents by how well they answer a query; at each path as the clients who know it expect."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

from aiohttp import web
from pydantic import AliasChoices, BaseModel, Field, model_validator

from infinity_pool.api.ability import check_ability
from infinity_pool.api.asking import Asked
from infinity_pool.api.billing import Meta, meta_of, search_units
from infinity_pool.api.described import described, speak
from infinity_pool.api.dialects import cohere, tei
from infinity_pool.api.documents import Document, Documents, as_object, texts_of
from infinity_pool.api.rendering import json_response
from infinity_pool.api.scoring import ScoringBody, scored_response
from infinity_pool.api.shapes import Answer
from infinity_pool.api.tei import Direction, Timed, side_of
from infinity_pool.api.texts import ListOfTexts
from infinity_pool.broker.answers import Ranked, ranked
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import WorkerInfo

routes = web.RouteTableDef()


class RerankBody(ScoringBody):
    """
    What is asked for, by the names of every client: `documents`, or, as text-embeddings-inference has it, `texts`.

    Of documents that are objects `text` is read, or `rank_fields`, one after another. An `instruction` is for language
    models, which others refuse. `truncation` false is `truncate` false.
    """

    query: str
    documents: Documents | None = None
    texts: ListOfTexts | None = None
    rank_fields: ListOfTexts | None = None
    top_n: int | None = Field(None, ge=1, validation_alias=AliasChoices("top_n", "top_k"))
    return_documents: bool | None = Field(None, validation_alias=AliasChoices("return_documents", "return_text"))
    instruction: str | None = None
    truncation: bool | None = None
    truncation_direction: Direction | None = None
    max_tokens_per_doc: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_kind(self) -> "RerankBody":
        """Refuse a request without documents, or with both kinds."""
        if (self.documents is None) == (self.texts is None):
            given = "Field required" if self.texts is None else "give documents or texts, not both"
            raise InvalidInput(f"documents: {given}", param="documents")
        return self

    @property
    def field(self) -> str:
        """The field that the documents are in."""
        return "documents" if self.texts is None else "texts"

    @property
    def given(self) -> list[Document]:
        """The documents."""
        return list(self.texts or self.documents or ())

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        more = {"truncate": self.truncation, "instruction": self.instruction}
        given = {name: value for name, value in more.items() if value is not None}
        return given | side_of(self.truncation_direction) | super().options


class TextRank(BaseModel):
    """A text's place in the request, and how well it answers the query."""

    index: int
    score: float
    text: str | None = None


class RankedDocument(BaseModel):
    """A document's place in the request, and how well it answers the query."""

    relevance_score: float
    index: int
    document: str | None


class RankedObject(RankedDocument):
    """The same, with the document as an object."""

    document: dict[str, Any] | None  # type: ignore[assignment] # another shape of the same


class RerankAnswer(Answer):
    """The documents, the best first."""

    object: Literal["rerank"]
    results: list[RankedDocument]
    meta: Meta


class ObjectsAnswer(RerankAnswer):
    """The documents, the best first."""

    results: list[RankedObject]  # type: ignore[assignment] # another shape of the same


class _Ranking(NamedTuple):
    asked: Timed
    body: RerankBody
    texts: list[str]
    best: list[Ranked]
    result: Result
    worker: WorkerInfo


@routes.post("/rerank")
@described(takes=RerankBody, gives=RerankAnswer | list[TextRank], others=(tei,))
async def rerank(request: web.Request) -> web.Response:
    """
    Rank documents, the best first.

    As Infinity has it, or, of `texts`, as text-embeddings-inference has it.
    """
    ranking = await _rank(request)
    if ranking.body.texts is None:
        return _answer(ranking, "1", lambda index: ranking.texts[index])
    pairs = [[ranking.body.query, text] for text in ranking.texts]
    headers = ranking.asked.told(ranking.body.model, pairs, ranking.result)
    return json_response(_told(ranking), headers=headers)


@routes.post("/v1/rerank")
@described(takes=RerankBody, gives=ObjectsAnswer, dialect=cohere, others=(tei,))
async def rerank_v1(request: web.Request) -> web.Response:
    """Rank documents, the best first, as Cohere's first API and Jina's have it."""
    ranking = await _rank(request)
    return _answer(ranking, "1", lambda index: as_object(ranking.body.given[index]))


@routes.post("/v2/rerank")
@described(takes=RerankBody, gives=ObjectsAnswer, dialect=cohere, others=(tei,))
async def rerank_v2(request: web.Request) -> web.Response:
    """Rank documents, the best first, as Cohere's second API has it."""
    ranking = await _rank(request)
    return _answer(ranking, "2", lambda index: as_object(ranking.body.given[index]))


async def _rank(request: web.Request) -> _Ranking:
    """Score all documents for the query."""
    asked = Timed(request)
    body = await _read(asked, request)
    asked.check_count(body.given, body.field)
    texts = texts_of(body.given, body.rank_fields)
    _check_size(body.query, len(texts), asked.settings.max_body)
    worker = await asked.worker(body.model)
    check_ability(worker, "rerank")
    _check_cut(body.max_tokens_per_doc, worker)
    pairs = [[body.query, text] for text in texts]
    result = await asked.run(body.model, "rerank", pairs, body.options, asked.lane(body.model, pairs), body.field)
    return _Ranking(asked, body, texts, ranked(cast(Array, result.outputs), body.top_n), result, worker)


async def _read(asked: Asked, request: web.Request) -> RerankBody:
    """Read the body; that of a client of text-embeddings-inference has its errors told as there."""
    try:
        body = await asked.read(RerankBody, "rerank")
    except InvalidInput:
        if b'"texts"' in await request.read():
            speak(request, tei)
        raise
    if body.texts is not None:
        speak(request, tei)
    return body


def _answer(ranking: _Ranking, version: str, document: Callable[[int], Any]) -> web.Response:
    """Answer with results and what says of them the same to every client; `document` gives one to be returned."""
    shown = document if ranking.body.return_documents else lambda index: None
    found = [{"relevance_score": one.score, "index": one.index, "document": shown(one.index)} for one in ranking.best]
    entries = {"results": found, "meta": meta_of(version, search_units=search_units(len(ranking.texts)))}
    return scored_response("rerank", entries, ranking.body.model, ranking.result, ranking.worker)


def _told(ranking: _Ranking) -> list[dict[str, Any]]:
    """Give what text-embeddings-inference says of texts, the best first."""
    texts = [{"text": text} if ranking.body.return_documents else {} for text in ranking.texts]
    return [{"index": one.index, "score": one.score, **texts[one.index]} for one in ranking.best]


def _check_size(query: str, count: int, limit: int) -> None:
    """Bound what is queued, as the query is with each document: all of it must fit into a body."""
    if len(query) * count > limit:
        message = f"query: {len(query)} characters for each of {count} documents are over {limit} in all"
        raise InvalidInput(message, param="query")


def _check_cut(tokens: int | None, worker: WorkerInfo) -> None:
    """Refuse to cut documents alone: what a model takes of one depends on its query."""
    if tokens is not None and tokens < worker.max_length:
        message = f"max_tokens_per_doc: this model cuts query and document together, at {worker.max_length} tokens; "
        raise InvalidInput(f"{message}truncate_prompt_tokens sets fewer", param="max_tokens_per_doc")
