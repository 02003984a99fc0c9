"""Parts of answers, as the OpenAPI document has them; they are rendered without these, from arrays."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, WithJsonSchema


class Usage(BaseModel):
    """The tokens that were run."""

    prompt_tokens: int
    total_tokens: int


class Answer(BaseModel):
    """What answers to requests for scores say of themselves."""

    model: str
    usage: Usage
    id: str
    created: int = Field(description="Seconds since 1970.")


Base64 = Annotated[str, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
"""Numbers as bytes, little-endian."""


class Embedding(BaseModel):
    """An item's vector, in its place; a matrix of one vector a token from models that have nothing else."""

    object: Literal["embedding"]
    index: int
    embedding: "Vector | Matrix"
    shape: list[int] | None = Field(None, description="Of a matrix.")


class Embeddings(BaseModel):
    """Vectors, in the order of their items."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    id: str
    created: int = Field(description="Seconds since 1970.")


class Listed(BaseModel):
    """What vLLM's answers say of themselves."""

    object: Literal["list"]
    id: str
    created: int = Field(description="Seconds since 1970.")
    model: str
    usage: Usage


Vector = list[float] | Base64
Matrix = list[list[float]] | Base64
