"""
What a family and an engine are to a worker: the whole contract.

A family is made twice: in each preprocessing process, where `prepare` runs, and beside the engine, where `collate`,
`reduce` and `finish` run. It must therefore be light to make: no weights, no torch at import.
An engine holds the network on a device and knows no task. Neither knows the queue.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from infinity_pool.broker.messages import Array, Item

Batch = dict[str, Array]
Reduce = Callable[[Any, Batch], Any]


class Rows(NamedTuple):
    """
    Prepared items, several in one set of flat buffers: the unit of Python work is the take, never the item.

    `lengths` is int32 [n]: the tokens (rows of the network's sequence) of each item. A `ragged` array has all items'
    rows one after another, [sum(lengths), …]; a `fixed` one has one row an item, [n, …]. `truncated` is bool [n].
    """

    lengths: Array
    ragged: dict[str, Array]
    fixed: dict[str, Array]
    truncated: Array

    def select(self, indices: Sequence[int]) -> "Rows":
        """Give the rows of some items, in that order."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        picked = np.concatenate([np.arange(starts[i], ends[i]) for i in indices] or [np.empty(0, np.int64)])
        chosen = np.asarray(indices, np.int64)
        return Rows(
            self.lengths[chosen],
            {name: array[picked] for name, array in self.ragged.items()},
            {name: array[chosen] for name, array in self.fixed.items()},
            self.truncated[chosen],
        )


class Head(NamedTuple):
    """What a batch is run for; a batch holds one head, so items of different heads never share one."""

    task: str
    modality: str = "text"
    variant: str = ""  # whatever else changes how the network is run or reduced


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, found and ready to load: `path` is its folder, the rest is what its own files say."""

    path: Path
    config: dict[str, Any]
    spec: str  # what the user wrote for --model
    revision: str | None = None
    trust_remote_code: bool = False
    max_length: int | None = None  # the user's own limit, over the model's
    extra: dict[str, Any] = field(default_factory=dict)


class Family(Protocol):
    """What a kind of model needs around its network."""

    tasks: tuple[str, ...]
    """What it can be asked for."""

    auto_class: str
    """The transformers class that loads its network, such as "AutoModel"."""

    max_length: int
    """Tokens after which an item is cut, special tokens included."""

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check a request's options and say what it is run for; raises InvalidInput, naming the option."""
        ...

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Turn items into arrays, in a preprocessing process; raises InvalidInput, naming the item."""
        ...

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad several sets of rows into the arrays of one batch, items in order."""
        ...

    def reduce(self, output: Any, batch: Batch) -> Any:
        """
        Cut the network's output down, on its device: [n, length, hidden] to [n, width] for a pooled vector.

        `output` and `batch` are torch tensors or numpy arrays, whichever the engine has; use what both share.
        """
        ...

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array | list[Any]:
        """Turn one job's reduced outputs, first axis its items, into what is answered."""
        ...


class Engine(Protocol):
    """A network loaded on a device."""

    device: str
    dtype: str

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch and give its reduced output as a numpy array, float32, first axis the items."""
        ...

    def close(self) -> None:
        """Give the device's memory back."""
        ...
