"""Matrices with one vector of length 1 a token, as late interaction compares them."""

import numpy as np

from infinity_pool.broker.messages import Array
from infinity_pool.workers.text.modules import unit


def cut(matrix: Array, width: int | None) -> Array:
    """Cut the vectors, never the tokens, of float32 [tokens, width], and make them of length 1 again."""
    if width is None or width == matrix.shape[-1]:
        return matrix
    return np.asarray(unit(matrix[:, :width]))
