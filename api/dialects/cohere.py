"""Cohere's errors: a message."""

from typing import Any

from pydantic import BaseModel


class CohereError(BaseModel):
    """An error."""

    message: str
    param: str | None
    code: str


ErrorAnswer = CohereError


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """Give an error as Cohere's clients expect it, and our own two fields."""
    return {"message": message, "param": param, "code": code}
