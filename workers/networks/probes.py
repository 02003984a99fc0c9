"""How near the outputs of two engines are, on texts of several lengths, alone and padded."""

from typing import Any

import numpy as np

from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import Batch, Engine, Family

_SENTENCE = "Il pleut sur la ville; the quick brown fox jumps over 12 lazy dogs, and nobody (not even she) minded! "
_PROBES = (
    ("What is the capital of France?",),
    ("hello", _SENTENCE, _SENTENCE * 3, "数千年来,人们一直在观察星空。"),
    (_SENTENCE * 9,),
)


def probe_batches(family: Family) -> list[Batch]:
    """Prepare some texts for a family's first task, and what it has of other modalities."""
    wanted: list[tuple[dict[str, Any], list[Item]]] = [({}, [*map(family.example, texts)]) for texts in _PROBES]
    wanted += [(options, [item]) for options, item in family.probes()]
    task = family.tasks[0]
    return [batch_of(family, task, items, options) for options, items in wanted]


def batch_of(family: Family, task: str, items: list[Item], options: dict[str, Any]) -> Batch:
    """Prepare some items as one batch."""
    return family.collate([family.prepare(family.head(task, options), items, options)])


def outputs(engine: Engine, batches: list[Batch], family: Family) -> list[Array]:
    """Give the output of each batch, since those of tokens are as long as their batch."""
    return [engine.run(batch, family.reduce) for batch in batches]


def difference(ours: list[Array], theirs: list[Array]) -> float:
    """Give the largest difference of any number, relative to it where it is over 1; NaN if there is one."""
    pairs = zip(ours, theirs, strict=True)
    return float(np.max([(np.abs(one - other) / np.maximum(1, np.abs(other))).max() for one, other in pairs]))


def worst_cosine(engine: Engine, reference: Engine, family: Family) -> float:
    """Give the smallest cosine of any item's output to that of `reference`, as `least_cosine` does."""
    batches = probe_batches(family)
    return least_cosine(outputs(engine, batches, family), outputs(reference, batches, family))


def least_cosine(ours: list[Array], theirs: list[Array]) -> float:
    """
    Give the smallest cosine of any item's output in some batches, [n, ...], to the other's.

    A single number, such as a score, has no angle: for these it is 1 less the largest difference.
    """
    if all(array[0].size == 1 for array in theirs):
        return 1 - difference(ours, theirs)
    return min(float(_cosines(one, other).min()) for one, other in zip(ours, theirs, strict=True))


def _cosines(ours: Array, theirs: Array) -> Array:
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (ours, theirs))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(1) / np.maximum(lengths, 1e-12))
