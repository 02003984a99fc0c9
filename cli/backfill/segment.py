"""Rows as they are written: some at a time, by columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infinity_pool.broker.messages import Array

Column = Array | Sequence[Any]
"""Numbers [n], vectors [n, width], or a list of texts or of arrays of different lengths."""


@dataclass(frozen=True, slots=True)
class Segment:
    """
    Some rows, each with its id; `numbered` says that ids are the rows' places, as the input has none.

    The last column is the one that is the task's; `labels` are those of a classifier, in the order of its scores.
    """

    ids: Sequence[Any]
    columns: Mapping[str, Column]
    numbered: bool
    labels: Sequence[str] = ()

    def records(self) -> Iterator[dict[str, Any]]:
        """Give each row by names; a classifier's scores by its labels."""
        for place, name in enumerate(self.ids):
            record = {"id": name, **{title: column[place] for title, column in self.columns.items()}}
            if self.labels:
                record["scores"] = dict(zip(self.labels, record["scores"].tolist(), strict=True))
            yield record
