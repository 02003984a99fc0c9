"""Texts to vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Item
from infinity_pool.broker.settings import option
from infinity_pool.cli.backfill.rows import Record, text_of
from infinity_pool.cli.backfill.segment import Column
from infinity_pool.cli.backfill.settings import BackfillSettings, own
from infinity_pool.workers.settings import EMBEDDING_DTYPES

OPTIONS = ("dimensions", "embedding_dtype", "normalize", "pooling", "prompt", "prompt_name", "input_type")
"""What the model is told with each job."""


@dataclass(frozen=True, kw_only=True)
class Settings(BackfillSettings):
    """Texts to vectors."""

    field: str = own("The field with the text.", default="text")
    dimensions: int = own("Numbers of a vector that are kept; 0: all.", default=0, minimum=0)
    embedding_dtype: str = option(
        "Number format of the vectors; auto: the model's.",
        default="auto",
        choices=("auto", *EMBEDDING_DTYPES),
        scope="backfill",
    )
    normalize: str = own(
        "Whether vectors have length 1; auto: as the model has it.", default="auto", choices=("auto", "yes", "no")
    )
    pooling: str = own("A way of sentence-transformers, in place of the model's own.", default="")
    prompt: str = own("A text that comes before each document.", default="")
    prompt_name: str = own("One of the model's prompts.", default="")
    input_type: str = own(
        "The side of a search that the documents are of.", default="auto", choices=("auto", "query", "document")
    )


def fields(settings: Any) -> list[str]:
    """Name the fields that are read."""
    return [settings.field]


def items(record: Record, settings: Any) -> list[Item]:
    """Give the text."""
    return [text_of(record, settings.field)]


def columns(outputs: Sequence[Sequence[Any]], labels: Sequence[str], settings: Any) -> dict[str, Column]:
    """Give the vectors."""
    return {"embedding": np.stack([vector for (vector,) in outputs])}
