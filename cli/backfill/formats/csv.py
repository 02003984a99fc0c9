"""CSV with a line of names."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from infinity_pool.cli.backfill.rows import MOST_TEXT, Line

SUFFIXES = (".csv",)


def read(stream: BinaryIO, fields: Sequence[str]) -> Iterator[Line]:
    """Give each row by the names in the first; its number is that of its last line. What is not UTF-8 is told later."""
    csv.field_size_limit(2 * MOST_TEXT)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _rows(csv.reader(text))
    finally:
        text.detach()  # whoever opened the file closes it


def _rows(rows: Any) -> Iterator[Line]:
    names: list[str] = next(rows, [])
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(rows.line_num, None, f"the row is not CSV: {error}")
            continue
        if len(row) > len(names):
            yield Line(rows.line_num, None, f"the row has {len(row)} values for {len(names)} names")
        elif not row:
            yield Line(rows.line_num, None, "the row is empty")
        else:
            yield Line(rows.line_num, dict(zip(names, row, strict=False)))
