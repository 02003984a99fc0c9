"""Plain text, a document a line."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from infinity_pool.cli.backfill.rows import Line, lines, only_field

SUFFIXES = (".txt", ".text")


def read(stream: BinaryIO, fields: Sequence[str]) -> Iterator[Line]:
    """Give each line as the one field that is asked for."""
    name = only_field([*fields], "txt")
    for number, line in lines(stream):
        if line is None:
            yield Line(number, None, "the line is too long")
            continue
        try:
            yield Line(number, {name: line.decode()})
        except UnicodeDecodeError:
            yield Line(number, None, "the line is not UTF-8")
