"""Documents as rerankers are sent them: texts, or objects, whose `text` is read unless other fields are named."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from infinity_pool.broker.errors import InvalidInput

Document = str | dict[str, Any]

_TEXT = ("text",)


def _text_or_object(value: Any) -> Document:
    """Take one or the other, and say in one error that it is neither."""
    if isinstance(value, str | dict):
        return value
    raise PydanticCustomError("document", "Input should be a text, or an object with a text")


Documents = Annotated[
    list[Annotated[Document, PlainValidator(_text_or_object, json_schema_input_type=Document)]],
    Field(min_length=1, fail_fast=True),
]
"""A list of texts, or of objects."""


def texts_of(documents: Sequence[Document], fields: Sequence[str] | None) -> list[str]:
    """
    Give what is read of each document: the fields that are named, in their order, each on a line of its own.

    Raises InvalidInput, naming the document, if it is an object without one of them.
    """
    return [_read(document, fields or _TEXT, index) for index, document in enumerate(documents)]


def as_object(document: Document) -> dict[str, Any]:
    """Give a document as Cohere and Jina do: an object as it came, and a text as one with a `text`."""
    return {"text": document} if isinstance(document, str) else document


def _read(document: Document, fields: Sequence[str], index: int) -> str:
    if isinstance(document, str):
        return document
    for field in fields:
        if not isinstance(document.get(field), str):
            raise InvalidInput(f"is an object whose field {field[:100]!r} is no text", param="documents", item=index)
    return "\n".join(document[field] for field in fields)
