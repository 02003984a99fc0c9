"""Texts as a request's JSON has them: one, or a list of them."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from infinity_pool.api.bodies.token_ids import TAKEN_OUT, are_ids, ids_of
from infinity_pool.broker.messages import Item


def as_list(value: Any) -> Any:
    """Let one text stand for a list of one."""
    return [value] if isinstance(value, str) else value


def _or_ids(value: Any, texts: ValidatorFunctionWrapHandler, info: ValidationInfo) -> list[Item]:
    """Take texts, or token ids, also those that were taken out of a large body before."""
    ids = (info.context or {}).get("ids")
    if ids is not None and value is TAKEN_OUT:
        return list(ids)
    if are_ids(value):
        return list(ids_of(value, info.field_name or "input"))
    checked: list[Item] = texts(value)
    return checked


ListOfTexts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
"""A list of texts."""

Texts = Annotated[
    list[str], Field(min_length=1, fail_fast=True), BeforeValidator(as_list, json_schema_input_type=str | list[str])
]
"""A list of texts; one text alone is a list of one."""


def _ids(value: Any, info: ValidationInfo) -> list[Item]:
    """Take token ids alone."""
    if not are_ids(value):
        raise PydanticCustomError("ids", "Input should be token ids, or a list of such")
    return list(ids_of(value, info.field_name or "ids"))


Ids = Annotated[list[Any], PlainValidator(_ids, json_schema_input_type=list[int] | list[list[int]])]
"""A list of arrays of token ids; the ids of one text alone are a list of one."""

TextsOrIds = Annotated[
    Texts, WrapValidator(_or_ids, json_schema_input_type=str | list[str] | list[int] | list[list[int]])
]
"""A list of texts, or of arrays of token ids; the ids of one item alone are a list of one."""
