"""Pads rows of tokens into the arrays of one batch."""

from collections.abc import Container, Sequence

import numpy as np

from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Batch, Rows


def mask_of(rows: Sequence[Rows]) -> Array:
    """Give bool [n, longest]: where there is a token. Padding is on the right, where no token ever looks."""
    lengths = np.concatenate([part.lengths for part in rows])
    return np.asarray(np.arange(lengths.max(initial=1)) < lengths[:, None])


def pad(rows: Sequence[Rows], name: str, mask: Array, fill: int) -> Array:
    """Give one ragged array of all rows as int64 [n, longest]."""
    padded = np.full(mask.shape, fill, np.int64)
    padded[mask] = np.concatenate([part.ragged[name] for part in rows])
    return padded


def text_batch(rows: Sequence[Rows], mask: Array, inputs: Container[str], pad_id: int) -> Batch:
    """Give what networks of text take: `input_ids`, `attention_mask` and, if it is among `inputs`, `token_type_ids`."""
    batch = {"input_ids": pad(rows, "input_ids", mask, pad_id), "attention_mask": mask.astype(np.int64)}
    if "token_type_ids" in inputs:
        typed = "token_type_ids" in rows[0].ragged
        batch["token_type_ids"] = pad(rows, "token_type_ids", mask, 0) if typed else np.zeros(mask.shape, np.int64)
    return batch
