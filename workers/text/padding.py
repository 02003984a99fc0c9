"""Pads rows of tokens into the arrays of one batch."""

from collections.abc import Sequence

import numpy as np

from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Rows


def mask_of(rows: Sequence[Rows]) -> Array:
    """Give bool [n, longest]: where there is a token. Padding is on the right, where no token ever looks."""
    lengths = np.concatenate([part.lengths for part in rows])
    return np.asarray(np.arange(lengths.max(initial=1)) < lengths[:, None])


def pad(rows: Sequence[Rows], name: str, mask: Array, fill: int) -> Array:
    """Give one ragged array of all rows as int64 [n, longest]."""
    padded = np.full(mask.shape, fill, np.int64)
    padded[mask] = np.concatenate([part.ragged[name] for part in rows])
    return padded
