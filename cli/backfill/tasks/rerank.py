"""Queries and documents to scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Item
from infinity_pool.cli.backfill.rows import Record, text_of, texts_of
from infinity_pool.cli.backfill.segment import Column
from infinity_pool.cli.backfill.settings import BackfillSettings, own

OPTIONS = ("raw_scores",)


@dataclass(frozen=True, kw_only=True)
class Settings(BackfillSettings):
    """Queries and documents to scores."""

    query_field: str = own("The field with the query.", default="query")
    document_field: str = own("The field with the one document of a row, which gets a score.", default="document")
    documents_field: str = own("The field with a list of documents, which get scores, in place of one.", default="")
    top_n: int = own(
        "Documents of each list whose scores are kept, the best first, with their places; 0: all, in the list's order.",
        default=0,
        minimum=0,
    )
    raw_scores: bool = own("Scores before the model's activation.", default=False)


def fields(settings: Any) -> list[str]:
    """Name the fields that are read."""
    return [settings.query_field, settings.documents_field or settings.document_field]


def items(record: Record, settings: Any) -> list[Item]:
    """Give the pairs of a row."""
    query = text_of(record, settings.query_field)
    if settings.documents_field:
        return [[query, document] for document in texts_of(record, settings.documents_field)]
    return [[query, text_of(record, settings.document_field)]]


def columns(outputs: Sequence[Sequence[Any]], labels: Sequence[str], settings: Any) -> dict[str, Column]:
    """Give the score of each row, or those of each: in the order of its documents, or of the best and their places."""
    if settings.documents_field:
        scores = [np.array(row, np.float32) for row in outputs]
        if not settings.top_n:
            return {"scores": scores}
        best = [np.argsort(-row, kind="stable")[: settings.top_n] for row in scores]
        kept = [row[places] for row, places in zip(scores, best, strict=True)]
        return {"indices": [places.astype(np.int32) for places in best], "scores": kept}
    return {"score": np.array([score for (score,) in outputs], np.float32)}
