"""No model at all, to measure what is around one: each of a text's 13 numbers is its length in characters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.options import check_names, check_task, count_of
from infinity_pool.workers.text.quantising import OPTION, NumberFormats

_WIDTH = 13
_CHARS_PER_TOKEN = 4


def serves(files: ModelFiles) -> Claim:
    """Serve no files: the dummy engine alone has this family."""
    return Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Nothing: there are no files."""
    return {}


def make(files: ModelFiles) -> Family:
    """Make the family; it needs no files."""
    return Dummy(files)


class Dummy(Family):
    """Texts in, their lengths out."""

    tasks: tuple[str, ...] = ("embed",)
    auto_class = ""
    inputs: tuple[str, ...] = ()
    max_chars = 0

    def __init__(self, files: ModelFiles) -> None:
        self.max_length = files.max_length or 512
        self.dimensions = _WIDTH
        self._formats = NumberFormats(files, _WIDTH, steps=False)

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check the task, `dimensions` and `embedding_dtype`."""
        check_task(task, self.tasks)
        check_names(options, ("dimensions", OPTION))
        count_of(options, "dimensions", _WIDTH)
        self._formats.check(options)
        return Head(task)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Count characters."""
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise InvalidInput(f"must be a text, not {type(item).__name__}", item=index)
        chars = np.fromiter(map(len, items), np.int32, len(items))
        tokens = np.maximum(chars // _CHARS_PER_TOKEN, 1)
        return Rows(np.minimum(tokens, self.max_length), {}, {"chars": chars}, tokens > self.max_length)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Join the rows."""
        return {"chars": np.concatenate([part.fixed["chars"] for part in rows])}

    def reduce(self, output: Any, batch: Any) -> Any:
        """Repeat each length 13 times: float32 [n, 13]."""
        return np.repeat(batch["chars"].astype(np.float32)[:, None], _WIDTH, axis=1)

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array:
        """Cut to `dimensions`, and quantise."""
        return self._formats.apply(outputs[:, : options.get("dimensions") or _WIDTH], options)
