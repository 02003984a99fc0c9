"""text-embeddings-inference's errors: flat, with a type."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

TITLE = "text-embeddings-inference"

NAMES: Mapping[str, tuple[str, ...]] = {
    "modality": ("inputs",),
    "truncation_side": ("truncation_direction",),
}
"""How requests call our options."""

_TYPES: dict[int, str] = {
    HTTPStatus.UNPROCESSABLE_ENTITY: "Tokenizer",
    HTTPStatus.TOO_MANY_REQUESTS: "Overloaded",
    HTTPStatus.SERVICE_UNAVAILABLE: "Unhealthy",
}


class TeiError(BaseModel):
    """An error; `error_type` is one of Validation, Tokenizer, Overloaded, Unhealthy and Backend."""

    error: str
    error_type: str
    param: str | None
    code: str


ErrorAnswer = TeiError


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """Give an error as text-embeddings-inference's clients expect it, and our own two fields."""
    usual = "Validation" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "Backend"
    return {"error": message, "error_type": _TYPES.get(status, usual), "param": param, "code": code}
