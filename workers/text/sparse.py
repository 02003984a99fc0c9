"""
Sparse vectors: the places of a vocabulary that a text has weight in.

A text's vector is two arrays, [indices int32, values float32], in order of the indices; values are over 0.
"""

import numpy as np

from infinity_pool.broker.messages import Array

Sparse = list[Array]


def sparse_of(weights: Array) -> Sparse:
    """Give the places over 0 of float32 [vocabulary]."""
    indices = np.flatnonzero(weights > 0)
    return [indices.astype(np.int32), weights[indices].astype(np.float32)]


def sparse_of_tokens(ids: Array, weights: Array) -> Sparse:
    """Give each token id that has weight over 0 once, with its largest weight; both are [tokens]."""
    kept = weights > 0
    indices, places = np.unique(ids[kept], return_inverse=True)
    values = np.zeros(len(indices), np.float32)
    np.maximum.at(values, places, weights[kept])
    return [indices.astype(np.int32), values]


def heaviest(vector: Sparse, count: int | None) -> Sparse:
    """Keep the `count` largest values, of equal ones those with the lower index, in order of the indices."""
    indices, values = vector
    if count is None or len(values) <= count:
        return vector
    kept = np.sort(np.argsort(-values, kind="stable")[:count])
    return [indices[kept], values[kept]]
