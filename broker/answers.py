"""What scores mean to who asked for them: documents in order, and labels by name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document's place in the list that was asked about, and how well it answers the query."""

    index: int
    score: float


class Label(NamedTuple):
    """A classifier's label, and how well it fits."""

    label: str
    score: float


class Spelled(NamedTuple):
    """
    A text's tokens, n of them, as the task `tokenize` gives them.

    `ids` is int32 [n], `special` bool [n], and `offsets` int32 [n, 2]: where in the text each begins and ends, in
    characters; [0, 2] from tokenizers that cannot tell. `strings` are the tokens, or the text that each stands for.
    """

    ids: Array
    special: Array
    offsets: Array
    strings: list[str]


def listed(texts: Sequence[T], field: str) -> list[T]:
    """Give a list; raises InvalidInput, naming the `field`, on a lone text, which is a sequence of letters too."""
    if isinstance(texts, str):
        raise InvalidInput(f"{field} is a list of texts, not one text", param=field)
    return list(texts)


def check_top_n(top_n: int | None) -> None:
    """Raise InvalidInput if it is less than one."""
    if top_n is not None and top_n < 1:
        raise InvalidInput(f"top_n must be over 0, not {top_n}", param="top_n")


def ranked(scores: Array, top_n: int | None = None) -> list[Ranked]:
    """Give documents by their scores [n], the best first, of equal ones the earlier; `top_n` of them at most."""
    best = np.argsort(-scores, kind="stable")[:top_n]
    return [Ranked(*one) for one in zip(best.tolist(), scores[best].tolist(), strict=True)]


def labelled(scores: Array, labels: Sequence[str]) -> list[list[Label]]:
    """Give each text's labels by its scores [n, labels], the best first."""
    best = np.argsort(-scores, axis=1, kind="stable")
    rows = zip(best.tolist(), np.take_along_axis(scores, best, axis=1).tolist(), strict=True)
    return [[Label(labels[place], score) for place, score in zip(*row, strict=True)] for row in rows]


@contextmanager
def naming_documents() -> Iterator[None]:
    """Tell an error of one pair as what who gave one query and several documents knows it by."""
    try:
        yield
    except InvalidInput as error:
        if error.item is not None and error.param == "query":
            error.item = None
        elif error.item is not None or error.param == "input":
            error.param = "documents"
        raise
