"""One array of numpy's, with the ids beside it in OUT.ids.jsonl."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.cli.backfill.appended import Appended
from infinity_pool.cli.backfill.segment import Segment

SUFFIXES = (".npy",)


class Writer:
    """An array that grows by its first axis; `state` is what an earlier run committed."""

    def __init__(self, out: Path, state: Mapping[str, Any], shard_rows: int) -> None:
        self._array, self._ids = (
            Appended(file, state.get(name, 0)) for file, name in zip(files(out), ("bytes", "ids"), strict=True)
        )
        self._rows: int = state.get("rows", 0)
        self._width: list[int] = state.get("width", [])
        self._dtype: str = state.get("dtype", "")

    def add(self, segment: Segment) -> None:
        """Write some rows; raises InvalidInput if they are not equally wide."""
        column = [*segment.columns.values()][-1]
        if not isinstance(column, np.ndarray):
            raise InvalidInput("an .npy file takes rows of one width: name a .parquet or .jsonl file", param="out")
        rows = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
        if not self._dtype:
            self._width, self._dtype = [*rows.shape[1:]], rows.dtype.str
            self._array.write(self._header())
        self._array.write(rows.tobytes())
        self._ids.write(b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in segment.ids))
        self._rows += len(rows)

    def commit(self) -> dict[str, Any]:
        """Make sure of all that was added; give what the next run must know."""
        if self._dtype:
            self._array.write_at_start(self._header())
        return {
            "bytes": self._array.sync(),
            "ids": self._ids.sync(),
            "rows": self._rows,
            "width": self._width,
            "dtype": self._dtype,
        }

    def finish(self) -> dict[str, Any]:
        """Commit the last; an array without rows has a header too."""
        if not self._dtype:
            self._width, self._dtype = [0], "<f4"
        return self.commit()

    def close(self) -> None:
        """Close the files."""
        self._array.close()
        self._ids.close()

    def _header(self) -> bytes:
        """Give the header, in which numpy leaves room for the number of rows to grow."""
        header = io.BytesIO()
        about = {"descr": self._dtype, "fortran_order": False, "shape": (self._rows, *self._width)}
        np.lib.format.write_array_header_1_0(header, about)
        return header.getvalue()


def files(out: Path) -> list[Path]:
    """Name what there would be."""
    return [out, out.with_name(f"{out.name}.ids.jsonl")]
