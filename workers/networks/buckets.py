"""Batches of few shapes, for devices on which each shape is a program of its own, compiled in minutes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Batch


def bucket(size: int, buckets: Sequence[int]) -> int:
    """Give the smallest bucket that holds a size; the last one if none does, which then is cut by its caller."""
    return next((one for one in buckets if one >= size), buckets[-1])


def doubling(least: int, most: int) -> list[int]:
    """Give `least`, doubled until `most`, which is the last."""
    sizes = [least]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes


def fill(batch: Batch, names: Sequence[str], rows: int, lengths: Sequence[int]) -> Iterator[tuple[Batch, int]]:
    """
    Cut a batch [n, length] into pieces of `rows`, as long as one of `lengths`; gives each with its number of real rows.

    What is filled up is 0, so no token looks there; but for rows without a text, whose first token sees itself, since
    a softmax over nothing is no number.
    """
    count, length = batch["input_ids"].shape
    width = bucket(length, lengths)
    for start in range(0, count, rows):
        piece = {name: _filled(batch[name][start : start + rows], rows, width) for name in names if name in batch}
        real = min(rows, count - start)
        if "attention_mask" in piece:
            piece["attention_mask"][real:, 0] = 1
        yield piece, real


def _filled(array: Array, rows: int, width: int) -> Array:
    filled = np.zeros((rows, width), array.dtype)
    filled[: len(array), : array.shape[1]] = array
    return filled


def cut(output: Any, rows: int, length: int) -> Any:
    """Undo `fill` in an output, array or tensor: [rows, length, hidden] of tokens, or [rows, labels]."""
    return output[:rows, :length] if output.ndim == 3 else output[:rows]
