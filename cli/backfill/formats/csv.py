"""CSV with a line of names."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from infinity_pool.cli.backfill.rows import MOST_TEXT, Line, check_encoding, check_names

SUFFIXES = (".csv",)


def read(stream: BinaryIO, fields: Sequence[str]) -> Iterator[Line]:
    """
    Give each row by the names in the first; its number is that of its last line. What is not UTF-8 is told later.

    Raises ValueError for UTF-16, and for a quote that is never closed, as all that follows it would be one text.
    """
    csv.field_size_limit(2 * MOST_TEXT)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _rows(_Lines(text), fields)
    finally:
        text.detach()  # whoever opened the file closes it


class _Lines:
    """The lines of a text, and whether they have `ended`."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline()
        self.ended = not line
        if self.ended:
            raise StopIteration
        return line


def _rows(lines: _Lines, fields: Sequence[str]) -> Iterator[Line]:
    rows: Any = csv.reader(lines)
    names: list[str] = next(rows, [])
    check_encoding("".join(names[:1]).encode(errors="surrogateescape"))
    _check_end(lines, rows.line_num, names)
    check_names(names, fields)
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(rows.line_num, None, _told(error, first, rows.line_num))
            continue
        _check_end(lines, rows.line_num, row)
        if len(row) > len(names):
            yield Line(rows.line_num, None, f"the row has {len(row)} values for {len(names)} names")
        elif not row:
            yield Line(rows.line_num, None, "the row is empty")
        else:
            yield Line(rows.line_num, dict(zip(names, row, strict=False)))


def _check_end(lines: _Lines, line: int, row: Sequence[str]) -> None:
    """Refuse a row whose reader came to the end of the file and asked for more: it is in the midst of a quote."""
    if lines.ended and row:
        began = line + 1 - len(row[-1].splitlines())
        raise ValueError(f"the quote that begins in line {began} is never closed")


def _told(error: csv.Error, first: int, last: int) -> str:
    if first == last:
        return f"the row is not CSV: {error}"
    return f"lines {first:,} to {last:,} are one row, as if a quote were left open, and not CSV: {error}"
