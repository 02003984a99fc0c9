"""Cohere's errors: a message, which Jina's clients, who ask at the same paths, read as a detail."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

TITLE = "Cohere and Jina"

NAMES: Mapping[str, tuple[str, ...]] = {
    "dimensions": ("output_dimension",),
    "embedding_dtype": ("embedding_types",),
    "modality": ("images", "inputs", "texts"),
    "truncate_prompt_tokens": ("max_tokens",),
    "truncation_side": ("truncate",),
}
"""How requests call our options."""


class CohereError(BaseModel):
    """An error."""

    message: str
    detail: str
    param: str | None
    code: str


ErrorAnswer = CohereError


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """Give an error as Cohere's and Jina's clients expect it, and our own two fields."""
    return {"message": message, "detail": message, "param": param, "code": code}
