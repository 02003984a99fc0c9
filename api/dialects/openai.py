"""OpenAI's errors, which Infinity, vLLM and what is our own have too."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

TITLE = "OpenAI, Infinity and vLLM"

NAMES: Mapping[str, tuple[str, ...]] = {
    "embedding_dtype": ("embedding_type", "embed_dtype"),
    "input_type": ("task",),
    "normalize": ("normalized", "use_activation"),
    "raw_scores": ("use_activation",),
    "truncate": ("truncation",),
    "truncation_side": ("truncation_direction",),
}
"""How requests of Jina's, vLLM's and others' clients call our options."""

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorDetail(BaseModel):
    """What went wrong, and in which field of the request."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """An error."""

    error: ErrorDetail


ErrorAnswer = OpenAIError


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """Give an error as OpenAI's clients expect it."""
    kind = _TYPES.get(status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
