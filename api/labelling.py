"""Texts to classify, and what is said of them: all labels and how well each fits."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, PlainValidator
from pydantic_core import PydanticCustomError

from infinity_pool.broker.answers import labelled
from infinity_pool.broker.messages import Array

_SLICE = 2**13
"""Labels named at a time, some milliseconds' work; between two slices all other requests have their turn."""


class LabelScore(BaseModel):
    """A label, and how well it fits."""

    score: float
    label: str


def _text_or_pair(value: Any) -> str | list[str]:
    """Take a text, or two of which one follows from the other or not."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return value
    raise PydanticCustomError("text", "Input should be a text, or a pair of two texts")


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
"""Two texts, of which one follows from the other or not."""


TextOrPair = Annotated[str | list[str], PlainValidator(_text_or_pair, json_schema_input_type=str | Pair)]
"""What a classifier takes."""


class Classified(NamedTuple):
    """Texts and pairs to classify, and whether it is one `alone`, whose answer is no list of answers."""

    items: list[str | list[str]]
    alone: bool


def _one_or_several(value: Any) -> Classified:
    """Take a text, a pair, or lists of one or two texts, as text-embeddings-inference tells them apart."""
    if isinstance(value, str):
        return Classified([value], alone=True)
    if isinstance(value, list) and value:
        if all(isinstance(text, str) for text in value) and len(value) <= 2:
            return Classified([_item(value)], alone=True)
        if all(isinstance(texts, list) and 0 < len(texts) <= 2 for texts in value):
            return Classified([_text_or_pair(_item(texts)) for texts in value], alone=False)
    raise PydanticCustomError("texts", "Input should be a text, a pair of two texts, or a list of lists of one or two")


def _item(texts: list[str]) -> str | list[str]:
    return texts if len(texts) == 2 else texts[0]


_OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]
_Several = Annotated[list[_OneOrTwo], Field(min_length=1)]
TextsOrPairs = Annotated[Classified, PlainValidator(_one_or_several, json_schema_input_type=str | _OneOrTwo | _Several)]
"""One text or pair, or a list of such, each a list."""


async def named_labels(scores: Array, labels: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Give each text's labels by its scores [n, labels], the best first."""
    data: list[list[dict[str, Any]]] = []
    step = max(1, _SLICE // scores.shape[1])
    for first in range(0, len(scores), step):
        if first:
            await asyncio.sleep(0)
        rows = labelled(scores[first : first + step], labels)
        data += [[{"score": one.score, "label": one.label} for one in row] for row in rows]
    return data
