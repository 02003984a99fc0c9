"""POST /v2/embed and /v1/embed: texts and images to vectors, in one number format or several, as Cohere has it."""

import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from aiohttp import web
from pydantic import AliasChoices, BaseModel, Field, model_validator

from infinity_pool.api.asking import Asked
from infinity_pool.api.billing import Meta, meta_of
from infinity_pool.api.bodies.reading import Dimensions, ModelBody
from infinity_pool.api.described import described
from infinity_pool.api.dialects import cohere
from infinity_pool.api.listing import pieces_response, row_pieces
from infinity_pool.api.parts import Part, Work, items_of, run_parts
from infinity_pool.api.purpose import purpose_of
from infinity_pool.api.rendering import SLICE, base64_of, dumps, little
from infinity_pool.api.shapes import Base64
from infinity_pool.api.texts import ListOfTexts
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import WorkerInfo

routes = web.RouteTableDef()

Format = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
Purpose = Literal["search_document", "search_query", "classification", "clustering", "image"]

_CUTS: dict[str | None, dict[str, Any]] = {"NONE": {"truncate": False}, "START": {"truncation_side": "left"}}


class ImageUrl(BaseModel):
    """Where an image is: a data URI, base64 alone, or a URL."""

    url: str


class Content(BaseModel):
    """A text, or an image."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: ImageUrl | None = None


class Input(BaseModel):
    """What one vector is of; several contents for one vector are refused, as no model here joins them."""

    content: Annotated[list[Content], Field(min_length=1)]


class EmbedBody(ModelBody):
    """What is asked for: `texts`, `images` or `inputs`; END of `truncate` is where the model itself cuts."""

    names: ClassVar = ("texts", "images", "inputs")

    texts: ListOfTexts | None = None
    images: ListOfTexts | None = None
    inputs: Annotated[list[Input], Field(min_length=1, fail_fast=True)] | None = None
    input_type: Purpose | None = None
    embedding_types: Annotated[list[Format], Field(min_length=1, max_length=6)] | None = None
    output_dimension: Dimensions = None
    truncate: Literal["NONE", "START", "END"] | None = None
    max_tokens: int | None = Field(
        None, ge=1, le=2**20, validation_alias=AliasChoices("max_tokens", "truncate_prompt_tokens")
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "EmbedBody":
        """Refuse a request without anything to embed, or with several kinds."""
        given = [name for name in self.names if getattr(self, name) is not None]
        if len(given) != 1:
            what = "not both" if given else "which are all missing"
            raise InvalidInput(f"give texts, images or inputs, {what}", param=given[1] if given else "texts")
        return self

    @property
    def field(self) -> str:
        """The field that the items are in."""
        return next(name for name in self.names if getattr(self, name) is not None)

    def parts(self) -> list[Part]:
        """Give the items; raises InvalidInput, naming the one that is not one text or image."""
        if self.inputs is None:
            modality = "text" if self.images is None else "image"
            return [Part(modality, value) for value in self.texts or self.images or ()]
        return [_part(one.content, index) for index, one in enumerate(self.inputs)]

    def options(self, worker: WorkerInfo, dtype: str, modality: str) -> dict[str, Any]:
        """Give what the model's family is told of one kind of item for one number format."""
        chosen: dict[str, Any] = {} if dtype == worker.embedding_dtype else {"embedding_dtype": dtype}
        if self.output_dimension is not None:
            chosen["dimensions"] = self.output_dimension
        if modality != "text":
            return chosen
        if self.max_tokens is not None and self.max_tokens < worker.max_length:
            chosen["truncate_prompt_tokens"] = self.max_tokens
        return chosen | _CUTS.get(self.truncate, {}) | purpose_of(worker, self.input_type)


class ByType(BaseModel):
    """The vectors of all items, in each number format that was asked for."""

    float_: list[list[float]] | None = Field(None, serialization_alias="float")
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None
    base64: list[Base64] | None = None


class EmbedAnswer(BaseModel):
    """Vectors, in the order of their items."""

    response_type: Literal["embeddings_by_type"]
    id: str
    embeddings: ByType
    texts: list[str]
    meta: Meta


class FloatsAnswer(BaseModel):
    """The same, for who names no number format to the first API."""

    response_type: Literal["embeddings_floats"]
    id: str
    embeddings: list[list[float]]
    texts: list[str]
    meta: Meta


@routes.post("/v2/embed")
@described(takes=EmbedBody, gives=EmbedAnswer, dialect=cohere)
async def embed_v2(request: web.Request) -> web.Response:
    """Embed texts and images, as Cohere's second API has it."""
    return await _embed(request, "2")


@routes.post("/v1/embed")
@described(takes=EmbedBody, gives=EmbedAnswer | FloatsAnswer, dialect=cohere)
async def embed_v1(request: web.Request) -> web.Response:
    """Embed texts and images, as Cohere's first API has it."""
    return await _embed(request, "1")


async def _embed(request: web.Request, version: str) -> web.Response:
    asked = Asked(request)
    body = await asked.read(EmbedBody, "embed")
    parts = body.parts()
    asked.check_count(parts, body.field)
    formats: list[Format] = list(dict.fromkeys(body.embedding_types or ["float"]))
    found = await _results(asked, body, parts, formats)
    first = next(iter(found.values()))
    about = {
        "id": str(uuid.uuid4()),
        "texts": [part.value for part in parts if part.modality == "text"],
        "meta": meta_of(version, **_units(parts, first)),
    }
    flat = version == "1" and body.embedding_types is None
    pieces = _pieces({name: cast(Array, found[_dtype(name)].outputs) for name in formats}, flat, about)
    numbers = sum(np.asarray(found[_dtype(name)].outputs).size for name in formats)
    return pieces_response(pieces, numbers, asked.headers(body.model, first))


async def _results(asked: Asked, body: EmbedBody, parts: list[Part], formats: list[Format]) -> dict[str, Result]:
    """Have the model give all items in each number format."""
    worker = await asked.worker(body.model)
    dtypes = list(dict.fromkeys(map(_dtype, formats)))
    works = [Work(body.model, "embed", partial(body.options, worker, dtype), body.field) for dtype in dtypes]
    asked.check_scope(body.model, "embed", [part.value for part in parts])
    items = await items_of(asked, works[0], parts)
    results = [await run_parts(asked, work, parts, items) for work in works]  # in turn: a key has so many items at once
    return dict(zip(dtypes, results, strict=True))


def _part(content: list[Content], index: int) -> Part:
    if len(content) > 1:
        raise InvalidInput(f"has {len(content)} contents; give each an input of its own", param="inputs", item=index)
    [one] = content
    value = one.text if one.type == "text" else one.image_url and one.image_url.url
    if value is None:
        raise InvalidInput(f"has no {one.type}", param="inputs", item=index)
    return Part("text" if one.type == "text" else "image", value)


def _dtype(name: str) -> str:
    return "float32" if name in ("float", "base64") else name


def _units(parts: list[Part], result: Result) -> dict[str, int]:
    images = sum(part.modality == "image" for part in parts)
    return {"input_tokens": result.tokens} | ({"images": images} if images else {})


def _pieces(vectors: Mapping[str, Array], flat: bool, about: dict[str, Any]) -> Iterator[bytes]:
    """Render the answer, each piece well under a millisecond's work."""
    kind = "embeddings_floats" if flat else "embeddings_by_type"
    yield dumps({"response_type": kind})[:-1] + b',"embeddings":' + (b"" if flat else b"{")
    for place, (name, rows) in enumerate(vectors.items()):
        if not flat:
            yield (b"," if place else b"") + dumps(name) + b":"
        yield b"["
        yield from _base64_rows(little(rows)) if name == "base64" else row_pieces(rows)
        yield b"]"
    yield (b"," if flat else b"},") + dumps(about)[1:]


def _base64_rows(rows: Array) -> Iterator[bytes]:
    step = max(1, SLICE // rows.shape[1])
    for first in range(0, len(rows), step):
        some = [base64_of(row) for row in rows[first : first + step]]
        yield (b"," if first else b"") + dumps(some)[1:-1]
