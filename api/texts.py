"""Texts as a request's JSON has them: one, or a list of them."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


def _as_list(value: Any) -> Any:
    """Let one text stand for a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and _are_token_ids(value):
        raise PydanticCustomError("token_ids", "token ids are not taken, send the text itself")
    return value


def _are_token_ids(value: list[Any]) -> bool:
    first = value[0] if value else None
    return type(first) is int or (isinstance(first, list) and _are_token_ids(first[:1]))


Name = Annotated[str, Field(min_length=1, max_length=256)]
"""A model's name."""

Texts = Annotated[list[str], Field(min_length=1, fail_fast=True), BeforeValidator(_as_list)]
"""A list of texts; one text alone is a list of one."""
