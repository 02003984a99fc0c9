"""Jina's errors: a detail."""

from typing import Any

from pydantic import BaseModel


class JinaError(BaseModel):
    """An error."""

    detail: str
    param: str | None
    code: str


ErrorAnswer = JinaError


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    """Give an error as Jina's clients expect it, and our own two fields."""
    return {"detail": message, "param": param, "code": code}
