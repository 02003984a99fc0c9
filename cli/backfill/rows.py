"""What is read from a file, row by row, and what is wrong with a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from infinity_pool.broker.errors import InvalidInput, Unprocessable
from infinity_pool.broker.messages import MAX_JOB_BYTES, Item

MOST_TEXT = MAX_JOB_BYTES
"""Bytes of a text; what is longer could not be sent."""

_MOST_LINE = 8 * MOST_TEXT  # bytes; a text may be escaped, and not alone in its line
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins, and UTF-32 of small-endian machines
_SHOWN_NAMES = 5
_SHOWN_CHARS = 50

Record = Mapping[str, Any]


class MissingField(Unprocessable):
    """A row has no field of a name."""


class Line(NamedTuple):
    """What a file has at one place, counted from 1: a record, or why there is none."""

    number: int
    record: Record | None
    error: str = ""


@dataclass(slots=True)
class Row:
    """
    A row of the input: its items, or what is wrong with it.

    `index` is its place in all of the input, from 0; `digest` stands for all rows up to this one.
    """

    index: int
    file: str
    line: int
    id: Any = None
    items: list[Item] = field(default_factory=list)
    error: str = ""
    digest: bytes = b""


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """
    Give the lines of a file with their numbers, from 1; None for one that is too long to be held.

    Raises ValueError for a file of UTF-16.
    """
    number = 0
    while line := stream.readline(_MOST_LINE):
        number += 1
        if number == 1:
            check_encoding(line)
            line = line.removeprefix(_BOM)
        too_long = len(line) == _MOST_LINE
        while len(line) == _MOST_LINE:
            line = stream.readline(_MOST_LINE)
        yield number, None if too_long else line.rstrip(b"\r\n")


def check_encoding(start: bytes) -> None:
    """Refuse a file by its first bytes: half of its lines would pass for text, with a zero beside each letter."""
    if start.startswith(_WIDE):
        raise ValueError("it is UTF-16; only UTF-8 is read")


def missing(record: Record, name: str) -> MissingField:
    """Give the error of a record that has no such field, which names some of those that it has."""
    others = ", ".join(repr(other[:_SHOWN_CHARS]) for other in [*record][:_SHOWN_NAMES])
    return MissingField(f"there is no field {name!r}" + (f", but {others}" if others else ""), param=name)


def text_of(record: Record, name: str) -> str:
    """Give a field that is a text; raises Unprocessable, saying what is wrong with it."""
    if name not in record:
        raise missing(record, name)
    return check_text(record[name], name)


def texts_of(record: Record, name: str) -> list[str]:
    """Give a field that is a list of texts; raises Unprocessable, saying what is wrong with it."""
    if name not in record:
        raise missing(record, name)
    texts = record[name]
    if not isinstance(texts, list):
        raise Unprocessable(f"{name} is no list of texts but {_kind(texts)}", param=name)
    if not texts:
        raise Unprocessable(f"{name} is empty", param=name)
    return [check_text(text, f"{name}[{place}]") for place, text in enumerate(texts)]


def check_text(text: Any, name: str) -> str:
    """Give what is a text; raises Unprocessable for anything else, and for one that is empty or too long."""
    if not isinstance(text, str):
        raise Unprocessable(f"{name} is no text but {_kind(text)}", param=name)
    if not text or text.isspace():
        raise Unprocessable(f"{name} is empty", param=name)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise Unprocessable(f"{name} is not UTF-8", param=name) from None
    if size > MOST_TEXT:
        raise Unprocessable(f"{name} has {size:,} bytes, over the limit of {MOST_TEXT:,}", param=name)
    return text


def check_id(value: Any, name: str) -> Any:
    """Give an id, which is a text or a whole number; raises Unprocessable for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return check_text(value, name)


def only_field(fields: list[str], kind: str) -> str:
    """Give the one field there is; raises InvalidInput for a format whose rows are texts alone."""
    if len(fields) != 1:
        raise InvalidInput(f"a {kind} file has no fields, so no {' and '.join(fields[1:])}", param="format")
    return fields[0]


def check_names(names: Sequence[str], fields: Sequence[str]) -> None:
    """Refuse a table in which a field that is read is there twice; raises ValueError."""
    for name in fields:
        if (count := names.count(name)) > 1:
            raise ValueError(f"{count} of its columns are called {name!r}")


def _kind(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        str: "a text",
        bytes: "binary data",
    }
    return names.get(type(value), "an object")
