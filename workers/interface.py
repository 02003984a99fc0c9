"""
What a family and an engine are to a worker: the whole contract.

A family is made twice: in each preprocessing process, where `prepare` runs, and beside the engine, where `collate`,
`reduce` and `finish` run. It must therefore be light to make: no weights, no torch at import.
An engine holds the network on a device and knows no task. Neither knows the queue.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from infinity_pool.broker.messages import Array, Item

Batch = dict[str, Array]
Reduce = Callable[[Any, Any], Any]  # the network's output, and the batch as the engine has it
Progress = Callable[[str, float | None], None]  # what is being done, and the part of it that is done (0 to 1)


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
        chosen = np.asarray(indices, np.int64)
        lengths = self.lengths[chosen]
        places = self._places(chosen, lengths) if self.ragged else chosen
        return Rows(
            lengths,
            {name: array[places] for name, array in self.ragged.items()},
            {name: array[chosen] for name, array in self.fixed.items()},
            self.truncated[chosen],
        )

    def _places(self, chosen: Array, lengths: Array) -> Array:
        """Give where in the ragged arrays some items' rows are: each item's start, counted on from there."""
        starts = np.cumsum(self.lengths) - self.lengths
        before = np.cumsum(lengths) - lengths
        return np.repeat(starts[chosen] - before, lengths) + np.arange(int(lengths.sum()))


class Head(NamedTuple):
    """What a batch is run for; a batch holds one head, so items of different heads never share one."""

    task: str
    modality: str = "text"
    variant: str = ""  # whatever else changes how the network is run or reduced


class GraphSpec(NamedTuple):
    """One ONNX graph of a network, for the batches that have its first input."""

    name: str  # of its file, without the ending
    output: str  # what it calls its output
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class ModelFiles:
    """
    A model on disk, found and ready to load: `path` is its folder, the rest is what its own files say.

    `extra` is what its family wrote down about it, once (see `FamilyModule.describe`), and `built` the folder of
    what was made of it; both are empty until then. It can be pickled.
    """

    path: Path
    config: dict[str, Any]
    spec: str  # what the user wrote for --model
    revision: str | None = None
    trust_remote_code: bool = False
    max_length: int | None = None  # the user's own limit, over the model's
    max_image_pixels: int = 2**26
    batch_tokens: int | None = None  # the user's own budget of a batch, over what warm-up would measure
    quantised: bool = False  # whether int8 is asked for, which an engine may have to make
    onnx_file: str = ""  # the one of its own ONNX files that the user wants run
    embedding_dtype: str = "float32"  # what embeddings are answered as where a request names nothing else
    ranges: Path = Path()  # where those of its dimensions are, if they were measured here
    compiled: bool = False  # whether torch is to compile its network
    extra: dict[str, Any] = field(default_factory=dict)
    built: Path = Path()

    @property
    def described(self) -> Path:
        """The folder of what its family wrote down."""
        return self.built / "family"

    @property
    def network(self) -> Path:
        """The folder that has the network's own config.json and weights."""
        return self.path / str(self.extra.get("network", ""))


class Family(Protocol):
    """What a kind of model needs around its network; a family inherits what is written here where that suits it."""

    tasks: tuple[str, ...]
    """What it can be asked for; the first is what it is measured with."""

    modalities: tuple[str, ...] = ("text",)
    """What its items can be: "text", "image" and "audio"."""

    labels: tuple[str, ...] = ()
    """The names of a classifier's labels, in the order of its outputs."""

    prompts: tuple[str, ...] = ()
    """The names that the option `input_type` may have: what texts are for, as the model tells it apart."""

    dimensions: int
    """Numbers in a vector, or labels in an answer."""

    auto_class: str
    """The transformers class that loads its network, such as "AutoModel"."""

    output: str = "last_hidden_state"
    """What an ONNX graph of the network calls its output; empty: there is none, as the network is no single graph.

    See `graphs` for networks that are several."""

    max_length: int
    """Tokens after which an item is cut, special tokens included."""

    max_chars: int
    """Characters of one item beyond which nothing is read, so that callers may cut before they send; 0: no bound."""

    inputs: tuple[str, ...]
    """Which arrays of a batch the network takes; the others serve `reduce`."""

    counts_unattended: bool = False
    """Whether outputs count where its attention mask is 0, so that no engine may pass over these tokens as padding."""

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check a request's options and say what it is run for; raises InvalidInput, naming the option."""
        ...

    def graphs(self) -> tuple[GraphSpec, ...]:
        """Say which ONNX graphs its network is run as: of two towers one for each; none where only torch runs it."""
        return (GraphSpec("model", self.output, self.inputs),) if self.output else ()

    def feed(self, batch: Batch) -> Batch:
        """Give what an ONNX graph takes of a batch, in numbers as the network itself takes them."""
        return batch

    def probes(self) -> list[tuple[dict[str, Any], Item]]:
        """Give items of its other modalities to compare engines with, each after the options that say what it is."""
        return []

    def example(self, text: str) -> Item:
        """Make an item for the first task out of a text, to measure and to compare with."""
        return text

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Turn items into arrays, in a preprocessing process; raises InvalidInput, naming the item."""
        ...

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad several sets of rows into the arrays of one batch, items in order."""
        ...

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the network as torch has it, on those of `inputs` that the batch has; gives its output, one tensor."""
        return network(**inputs)[0]

    def reduce(self, output: Any, batch: Any) -> Any:
        """
        Cut the network's output down, on its device: [n, length, hidden] to [n, width] for a pooled vector.

        `output` and `batch` are torch tensors or numpy arrays, whichever the engine has; use what both share.
        """
        ...

    def split(self, outputs: Array, batch: Batch) -> Array | list[Any]:
        """Give each item of a batch its part of the reduced outputs: an array if all are of one shape, else a list."""
        return outputs

    def finish(self, head: Head, outputs: Any, options: dict[str, Any]) -> Array | list[Any]:
        """Turn one job's outputs, an array or a list as `split` gives them, into what is answered."""
        ...


class Engine(Protocol):
    """A network loaded on a device."""

    device: str
    dtype: str
    cosine: float | None = None
    """The least to its own float32 of some texts' outputs, where loading measured it."""

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch and give its reduced output as a numpy array, float32, first axis the items."""
        ...

    def close(self) -> None:
        """Give the device's memory back."""
        ...


@runtime_checkable
class Packs(Protocol):
    """An engine that may run batches without padding, so that only the real tokens of a batch cost anything."""

    @property
    def packed(self) -> bool:
        """Whether it does so with the network it has."""
        ...


class Claim(IntEnum):
    """How a model's own files say that it is of a family; the strongest claim has it."""

    NONE = 0
    GENERAL = 1
    """It is what this family makes of any network of the right kind."""
    OWN = 2
    """It has what only this family's models have."""


class FamilyModule(Protocol):
    """What a file in workers/families/ has."""

    def serves(self, files: ModelFiles) -> Claim:
        """Say whether a model is of this family, by its own files."""
        ...

    def describe(self, files: ModelFiles, folder: Path) -> dict[str, Any]:
        """
        Write down what only heavy libraries can read from a model's files; runs once, in a process of its own.

        What does not fit into JSON goes to files in `folder`. `make` finds them as `files.extra` and `files.described`.
        Raises InvalidInput where the family cannot give what the model's files ask for.
        """
        ...

    def make(self, files: ModelFiles) -> Family:
        """Make the family of a described model; light."""
        ...


class EngineModule(Protocol):
    """What a file in workers/engines/ has."""

    def convert(self, files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
        """
        Make what the engine needs besides the model's files, in `folder`; runs once, in a process of its own.

        `load` finds what it returns, which must fit into JSON, in `files.extra` under the engine's name, and `folder`
        in `files.built` under that name too.
        """
        ...

    def load(self, files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
        """Load a network; raises InvalidInput if this engine cannot run it so."""
        ...
