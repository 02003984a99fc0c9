"""Parquet: read in batches, written as a folder of shards."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from infinity_pool.cli.backfill.appended import put_in_place
from infinity_pool.cli.backfill.rows import Line, check_names
from infinity_pool.cli.backfill.segment import Column, Segment

SUFFIXES = (".parquet", ".pq")

_BATCH = 256  # rows
_REPEATED = ["label"]  # columns whose values come again and again
_SHARD = "part-{:06d}.parquet"
_PENDING = "_pending-{:012d}.parquet"  # readers of folders pass over names that begin so


def read(stream: BinaryIO, fields: Sequence[str]) -> Iterator[Line]:
    """
    Give each row with those of the fields that there are; its number is its place, from 1.

    Raises ValueError where a field is there twice, and for a pipe: what a file holds is said at its end.
    """
    if not stream.seekable():
        raise ValueError("it is a pipe: save it as a file")
    file = parquet.ParquetFile(stream)
    check_names(file.schema_arrow.names, fields)
    names = [name for name in file.schema_arrow.names if name in fields]
    number = 0
    for batch in file.iter_batches(_BATCH, columns=names):
        columns = {name: _values(column) for name, column in zip(names, batch.columns, strict=True)}
        for place in range(batch.num_rows):
            number += 1
            yield Line(number, {name: values[place] for name, values in columns.items()})


def _values(column: "pa.Array[Any]") -> list[Any]:
    """Give a column's values; of a text that is not UTF-8 what can be read, which is refused later."""
    values: list[Any]
    try:
        values = column.to_pylist()
        return values
    except UnicodeDecodeError:
        values = _decoded(column.cast(_undecoded(column.type)).to_pylist())
        return values


def _undecoded(kind: "pa.DataType") -> "pa.DataType":
    """Give the type of the bytes of texts, or of lists of them."""
    if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
        return pa.large_list(_undecoded(kind.value_type))
    return pa.large_binary()


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


class Writer:
    """
    A folder of shards of `shard_rows` rows, the last one smaller.

    What is no whole shard yet is committed as a file of its own, which the next commit replaces.
    """

    def __init__(self, out: Path, state: Mapping[str, Any], shard_rows: int) -> None:
        self._folder = out
        self._shard_rows = shard_rows
        self._shards: int = state.get("shards", 0)
        self._tables: list[pa.Table] = []
        self._pending: Path | None = None  # as the state that was saved last names it
        self._replaced: Path | None = None
        out.mkdir(parents=True, exist_ok=True)
        if pending := state.get("pending"):
            self._pending = out / pending
            with self._pending.open("rb") as file:
                self._tables.append(parquet.read_table(file))
        known = {*map(_SHARD.format, range(self._shards)), pending}
        for file in files(out):
            if file.name not in known:
                file.unlink()
        self._rows = sum(table.num_rows for table in self._tables)

    def add(self, segment: Segment) -> None:
        """Take some rows, and write the shards that they complete."""
        self._tables.append(table_of(segment))
        self._rows += len(segment.ids)
        while self._rows >= self._shard_rows:
            table = pa.concat_tables(self._tables)
            self._put(_SHARD.format(self._shards), table.slice(0, self._shard_rows))
            self._shards += 1
            self._rows -= self._shard_rows
            self._tables = [table.slice(self._shard_rows)]

    def commit(self) -> dict[str, Any]:
        """Make sure of all that was added; give what the next run must know."""
        self._remove_replaced()
        if not self._rows:
            self._replaced, self._pending = self._pending, None
            return {"shards": self._shards}
        pending = self._folder / _PENDING.format(self._shards * self._shard_rows + self._rows)
        if pending != self._pending:
            self._tables = [pa.concat_tables(self._tables)]
            self._put(pending.name, self._tables[0])
            self._replaced, self._pending = self._pending, pending
        return {"shards": self._shards, "pending": pending.name}

    def finish(self) -> dict[str, Any]:
        """Write the last shard; what it replaces is removed when that is known."""
        if self._rows:
            self._put(_SHARD.format(self._shards), pa.concat_tables(self._tables))
            self._shards, self._rows, self._tables = self._shards + 1, 0, []
        return self.commit()

    def close(self) -> None:
        """Remove what the last commit replaced."""
        self._remove_replaced()

    def _remove_replaced(self) -> None:
        if self._replaced:
            self._replaced.unlink(missing_ok=True)
            self._replaced = None

    def _put(self, name: str, table: pa.Table) -> None:
        with put_in_place(self._folder / name) as file:
            parquet.write_table(table.combine_chunks(), file, compression="zstd", use_dictionary=_REPEATED)


def files(out: Path) -> list[Path]:
    """Name what there is."""
    return [*out.glob("part-*.parquet"), *out.glob("_pending-*.parquet"), *out.glob(".*.tmp")]


def table_of(segment: Segment) -> pa.Table:
    """Make a table; labels go along as its metadata."""
    ids = pa.array(segment.ids, pa.int64()) if segment.numbered else pa.array(map(str, segment.ids), pa.string())
    columns = {"id": ids, **{name: _array(column) for name, column in segment.columns.items()}}
    metadata = {"labels": "\n".join(segment.labels)} if segment.labels else None
    return pa.table(columns, metadata=metadata)


def _array(column: Column) -> "pa.Array[Any]":
    if isinstance(column, np.ndarray) and column.ndim == 2:
        values = pa.array(column.reshape(-1))
        return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(_element(values.type), column.shape[1]))
    if isinstance(column[0], np.ndarray):
        return pa.array(column, pa.list_(_element(pa.from_numpy_dtype(column[0].dtype))))
    return pa.array(column)


def _element(kind: "pa.DataType") -> "pa.Field[Any]":
    """Name the parts of a list as Parquet does, so that what is read again is what was written."""
    return pa.field("element", kind)
