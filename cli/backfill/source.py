"""The rows of all inputs, in their order, read ahead by a thread: a pipe may keep its reader waiting."""

import asyncio
import gzip
import hashlib
import importlib
import itertools
import lzma
import os
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import fsspec
import orjson

from infinity_pool.broker.errors import InvalidInput, Unprocessable
from infinity_pool.broker.messages import Item
from infinity_pool.cli.backfill.formats import FORMATS, READ
from infinity_pool.cli.backfill.ids import Ids
from infinity_pool.cli.backfill.rows import Line, MissingField, Record, Row, check_id, missing

STDIN = "-"

_BATCH = 64  # rows that are handed over at once
_AHEAD = 4  # batches
_BROKEN = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, ValueError)
"""What is raised for a file that is not what its name says; pyarrow's errors are ValueErrors."""
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_TRIED = 100  # rows, after which a field that none has is taken for a mistake


@dataclass(frozen=True)
class File:
    """One input: its size in bytes, None where nobody knows, and its format."""

    name: str
    size: int | None
    format: str


def find(inputs: Sequence[str], format: str) -> list[File]:
    """
    Find the files that paths, URLs and patterns stand for, those of a pattern by name.

    Raises InvalidInput for one that is not there, or whose format its name does not say.
    """
    files = [file for each in inputs for file in _found(each, format)]
    if sum(file.name == STDIN for file in files) > 1:
        raise InvalidInput("standard input can be read once", param="inputs")
    return files


def _found(given: str, format: str) -> Iterator[File]:
    if given == STDIN:
        if format == "auto":
            raise InvalidInput("standard input has no name: --format says what it is", param="format")
        if sys.stdin is None:
            raise InvalidInput("standard input is closed", param="inputs")
        yield File(STDIN, None, format)
        return
    try:
        system, path = fsspec.core.url_to_fs(given)
        is_pattern = any(letter in given for letter in "*?[") and not system.exists(path)
        names = sorted(system.glob(path)) if is_pattern else [path]
        names = [name for name in names if not system.isdir(name)]
        sizes = [system.info(name)["size"] for name in names]
    except FileNotFoundError:
        names = []
    except (OSError, ValueError, ImportError) as error:
        raise InvalidInput(f"{given} cannot be read: {error}", param="inputs") from error
    if not names:
        raise InvalidInput(_absent(given), param="inputs")
    for name, size in zip(names, sizes, strict=True):
        whole = system.unstrip_protocol(name) if "://" in given else name
        yield File(whole, size, _format_of(whole) if format == "auto" else format)


def _absent(given: str) -> str:
    """Say that there is no such file; a folder's are named by a pattern."""
    if given and Path(given).is_dir():
        return f"{given} is a folder: name its files, as '{given.rstrip('/')}/*'"
    return f"there is no file {given}"


def _format_of(name: str) -> str:
    path = PurePosixPath(name.lower())
    ending = PurePosixPath(path.stem).suffix if path.suffix in _PACKED else path.suffix
    found = next((each for each in FORMATS if ending in _module(each).SUFFIXES), None)
    if found in READ:
        return found
    if found:
        raise InvalidInput(f"{shown(name)} is {found}, which is only written, not read", param="inputs")
    raise InvalidInput(f"--format must say what {shown(name)} is: one of {', '.join(READ)}", param="format")


def shown(name: str) -> str:
    """Give a file's name as text that can be written down, also where its bytes are no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _module(format: str) -> Any:
    return importlib.import_module(f"infinity_pool.cli.backfill.formats.{format}")


def reader(format: str) -> Callable[[BinaryIO, Sequence[str]], Iterator[Line]]:
    """Give what reads a format, one of READ."""
    return cast(Callable[[BinaryIO, Sequence[str]], Iterator[Line]], _module(format).read)


class Source:
    """
    All rows, by `async for`; `items` makes a row's items of its record, and raises Unprocessable where it cannot.

    The first `skip` rows are read for what later rows must know of them, and not given; their digest must be `digest`.
    """

    def __init__(
        self,
        files: Sequence[File],
        fields: Sequence[str],
        items: Callable[[Record], list[Item]],
        *,
        id_field: str = "",
        unique: bool = True,
        skip: int = 0,
        digest: str = "",
    ) -> None:
        self.files = files
        self._fields = [*fields, id_field] if id_field else [*fields]
        self._items = items
        self._id_field = id_field
        self._unique = unique and bool(id_field)
        self._skip = skip
        self._digest = digest
        self._before = 0  # bytes of the files that are read
        self._rows_read = 0
        self._stream: BinaryIO | None = None
        self._slots = threading.Semaphore(_AHEAD)

    def part(self, done: int) -> float | None:
        """Say which part of the input so many rows are, by what those take that were read; None if nobody knows."""
        sizes = [file.size for file in self.files]
        if None in sizes or not self._rows_read:
            return None
        try:
            here = self._stream.tell() if self._stream else 0
        except ValueError:  # it was closed at this moment
            here = 0
        read = min(1.0, (self._before + here) / max(1, sum(size or 0 for size in sizes)))
        return read * done / self._rows_read

    async def __aiter__(self) -> AsyncIterator[Row]:
        loop, batches = asyncio.get_running_loop(), asyncio.Queue[list[Row] | BaseException]()

        def hand(batch: list[Row] | BaseException) -> None:
            loop.call_soon_threadsafe(batches.put_nowait, batch)

        threading.Thread(target=self._read, args=(hand,), name="infinity rows", daemon=True).start()
        while batch := await batches.get():
            if isinstance(batch, BaseException):
                raise batch
            self._slots.release()
            for row in batch:
                yield row

    def _read(self, hand: Callable[[list[Row] | BaseException], None]) -> None:
        """Hand over all rows in batches, then an empty one; an error, in place of the rest."""
        try:
            try:
                rows = self.rows()
                while batch := list(itertools.islice(rows, _BATCH)):
                    self._slots.acquire()
                    hand(batch)
                hand([])
            except Exception as error:  # noqa: BLE001 - who awaits the rows raises it
                hand(error)
        except RuntimeError:  # the loop is closed, and nobody waits
            return

    def rows(self) -> Iterator[Row]:
        """Give the rows that are not skipped; raises InvalidInput where those that are skipped have changed."""
        digest, seen, useless = b"", Ids() if self._unique else None, 0
        for index, (file, line) in enumerate(self._lines()):
            row = Row(index, shown(file.name), line.number, index)
            self._rows_read = index + 1
            error = self._fill(row, line, seen)
            digest = row.digest = _digest(digest, row)
            useless += isinstance(error, MissingField)
            if index + 1 == useless == _TRIED:
                raise InvalidInput(f"none of the first {_TRIED} rows can be used: {error}", param="field")
            if index + 1 == self._skip and digest.hex() != self._digest:
                raise InvalidInput(
                    f"the first {self._skip:,} rows have changed since they were done; --restart begins anew",
                    param="inputs",
                )
            if index >= self._skip:
                yield row
        if 0 < useless == self._rows_read:
            raise InvalidInput(f"none of the {useless} rows can be used: {error}", param="field")

    def _fill(self, row: Row, line: Line, seen: "Ids | None") -> Unprocessable | None:
        """Fill in a row's id and items, or its error, which is given too."""
        try:
            if line.record is None:
                raise Unprocessable(line.error)
            if self._id_field:
                if self._id_field not in line.record:
                    raise missing(line.record, self._id_field)
                row.id = check_id(line.record[self._id_field], self._id_field)
            row.items = self._items(line.record)
            if seen is not None and not seen.add(str(row.id)):
                raise Unprocessable(f"an earlier row has the id {row.id!r}", param=self._id_field)
        except Unprocessable as error:
            row.items, row.error = [], error.message
            return error
        return None

    def _lines(self) -> Iterator[tuple[File, Line]]:
        for file in self.files:
            try:
                for line in self._lines_of(file):
                    yield file, line
            except _BROKEN as error:
                message = f"{shown(file.name)} cannot be read as {file.format}: {error}"
                raise InvalidInput(message, param="inputs") from error
            self._before += file.size or 0

    def _lines_of(self, file: File) -> Iterator[Line]:
        with _open(file) as (raw, stream):
            self._stream = raw
            yield from reader(file.format)(stream, self._fields)
            self._stream = None


@contextmanager
def _open(file: File) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file; gives the file itself, whose place is known, and what it holds when it is unpacked."""
    if file.name == STDIN:
        stream = os.fdopen(0, "rb", closefd=False)  # not Python's own, which could not be closed while it is read
        yield stream, stream
        return
    opened = fsspec.open(file.name, "rb", compression="infer")
    with opened as stream:
        yield opened.fobjects[0], stream


def _digest(before: bytes, row: Row) -> bytes:
    about = orjson.dumps([row.id if not row.error else None, row.items, row.error])
    return hashlib.blake2b(before + about, digest_size=16).digest()
