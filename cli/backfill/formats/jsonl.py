"""JSON, an object a line."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from infinity_pool.cli.backfill.appended import Appended
from infinity_pool.cli.backfill.rows import Line, lines
from infinity_pool.cli.backfill.segment import Segment

SUFFIXES = (".jsonl", ".ndjson")


def read(stream: BinaryIO, fields: Sequence[str]) -> Iterator[Line]:
    """Give each line's object, whatever fields it has."""
    for number, line in lines(stream):
        yield Line(number, None, "the line is too long") if line is None else _read(number, line)


def _read(number: int, line: bytes) -> Line:
    if not line.strip():
        return Line(number, None, "the line is empty")
    try:
        line.decode()
        record = orjson.loads(line)
    except UnicodeDecodeError:
        return Line(number, None, "the line is not UTF-8")
    except orjson.JSONDecodeError as error:
        return Line(number, None, f"the line is not JSON: {error}")
    return Line(number, record) if isinstance(record, dict) else Line(number, None, "the line is no JSON object")


class Writer:
    """One file that grows; `state` is what an earlier run committed."""

    def __init__(self, out: Path, state: Mapping[str, Any], shard_rows: int) -> None:
        self._file = Appended(out, state.get("bytes", 0))

    def add(self, segment: Segment) -> None:
        """Write some rows."""
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        for record in segment.records():
            self._file.write(orjson.dumps(record, option=options))

    def commit(self) -> dict[str, Any]:
        """Make sure of all that was added; give what the next run must know."""
        return {"bytes": self._file.sync()}

    finish = commit

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def files(out: Path) -> list[Path]:
    """Name what there would be."""
    return [out]
