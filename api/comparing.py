"""How vectors and matrices of two sides are compared."""

from collections.abc import Sequence

import numpy as np

from infinity_pool.broker.messages import Array
from infinity_pool.broker.presence import WorkerInfo


def plain_numbers(worker: WorkerInfo | None) -> dict[str, str]:
    """Ask for numbers that can be compared, where a worker gives others by default."""
    return {} if worker is None or worker.embedding_dtype == "float32" else {"embedding_dtype": "float32"}


def max_sim(queries: Sequence[Array], documents: Sequence[Array]) -> Array:
    """For each vector of a query the largest dot product with one of its document, summed: float32 [n]."""
    pairs = zip(queries, documents, strict=True)
    return np.array([(query @ document.T).max(1).sum() for query, document in pairs], np.float32)


def cosine(queries: Sequence[Array], documents: Sequence[Array]) -> Array:
    """Give the cosine of each pair of vectors, float32 [n], which rounding does not bring over 1."""
    one, other = (np.asarray(side, np.float32) for side in (queries, documents))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray(np.clip((one * other).sum(1) / np.maximum(lengths, 1e-12), -1, 1))
