"""Texts, or pairs of texts, to labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infinity_pool.broker.errors import Unprocessable
from infinity_pool.broker.messages import Item
from infinity_pool.cli.backfill.rows import Record, text_of, texts_of
from infinity_pool.cli.backfill.segment import Column
from infinity_pool.cli.backfill.settings import BackfillSettings, own

OPTIONS = ("raw_scores",)


@dataclass(frozen=True, kw_only=True)
class Settings(BackfillSettings):
    """Texts to labels."""

    field: str = own("The field with the text, or with a list of two, as for entailment.", default="text")
    raw_scores: bool = own("Scores before the model's activation.", default=False)


def fields(settings: Any) -> list[str]:
    """Name the fields that are read."""
    return [settings.field]


def items(record: Record, settings: Any) -> list[Item]:
    """Give the text, or the pair."""
    if not isinstance(record.get(settings.field), list):
        return [text_of(record, settings.field)]
    pair = texts_of(record, settings.field)
    if len(pair) != 2:
        raise Unprocessable(f"{settings.field} has {len(pair)} texts, not two", param=settings.field)
    return [pair]


def columns(outputs: Sequence[Sequence[Any]], labels: Sequence[str], settings: Any) -> dict[str, Column]:
    """Give the best label, its score, and the scores of all labels."""
    scores = np.stack([row for (row,) in outputs]).astype(np.float32)
    best = scores.argmax(1)
    return {
        "label": [labels[place] for place in best.tolist()],
        "score": scores[np.arange(len(best)), best],
        "scores": scores,
    }
