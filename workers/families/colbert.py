"""
ColBERT: a text to a matrix with one vector of length 1 for each of its tokens, to be compared by MaxSim.

PyLate's folders, those of the Stanford implementation, which jina-colbert's are too, and sentence-transformers' own
(MultiVectorEncoder); vectors equal PyLate's and sentence-transformers'.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.late_interaction import STANFORD, Side, read_sides, sees_nothing
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.matrices import cut
from infinity_pool.workers.text.modules import modules_of, unit
from infinity_pool.workers.text.multi_vector import is_multi_vector, read_multi_vector
from infinity_pool.workers.text.options import INPUT_TYPES, check_names, check_task, count_of, input_type_of
from infinity_pool.workers.text.padding import mask_of, pad
from infinity_pool.workers.text.projection import (
    Layer,
    Projection,
    dense_layer,
    read_dense,
    read_tensors,
    write_weights,
)
from infinity_pool.workers.text.quantising import OPTION, NumberFormats
from infinity_pool.workers.text.saved_tokenizer import load, saved_options

_OPTIONS = ("dimensions", OPTION, "input_type", *CUTS)


def serves(files: ModelFiles) -> Claim:
    """Claim PyLate's and sentence-transformers' folders, and networks whose architecture is HF_ColBERT."""
    modules = modules_of(files.path)
    described = read_object(files.path / "config_sentence_transformers.json")
    pylate = any(kind.startswith("pylate.") for kind, _ in modules) or described.get("model_type") == "ColBERT"
    stanford = STANFORD in (files.config.get("architectures") or [])
    return Claim.OWN if stanford or (modules and pylate) or is_multi_vector(files.path) else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer and the projection to `folder`, and give what the two sides' tokens are."""
    from infinity_pool.workers.networks.network import read_config
    from infinity_pool.workers.text.reading import read_text_model

    modules = modules_of(files.path)
    network = {"network": modules[0][1] if modules else ""}
    files = replace(files, extra=network)
    ours = is_multi_vector(files.path)
    facts = network | read_text_model(files, folder, ColBert.auto_class, sides=ours)
    config = read_config(files)
    if ours:
        sides = read_multi_vector(files, load(files, saved_options(folder)), facts["max_length"])
    else:
        sides = read_sides(files, config.vocab_size)
    window = getattr(config, "local_attention", None) or getattr(config, "sliding_window", None)
    return facts | {
        "sides": sides,
        "layers": _read_layers(files, modules, folder),
        "torch_only": sees_nothing(sides["query"], window),
    }


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return ColBert(files)


def _read_layers(files: ModelFiles, modules: list[tuple[str, str]], folder: Path) -> list[Layer]:
    """Read the Dense modules, or the one layer that Stanford's checkpoints hold beside the network."""
    layers, weights = [], {}
    for number, (kind, place) in enumerate(modules):
        if kind.endswith(".Dense"):  # PyLate passes over all others
            usual = "Identity" if kind.startswith("pylate.") else "Tanh"
            layer, weights[str(number)] = read_dense(files.path / place, str(number), usual)
            layers.append(layer)
    if not modules:
        weights["linear"] = read_tensors(files.path, ("linear.weight",))
        if not weights["linear"]:
            raise InvalidInput(f"model {files.spec!r} has no linear.weight", param="model")
        layers.append(dense_layer("linear", weights["linear"]))
    if not layers and not is_multi_vector(files.path):
        raise InvalidInput(f"model {files.spec!r} has no Dense module", param="model")
    write_weights(folder, weights)
    return layers


class ColBert(Family):
    """Texts in, one float32 matrix [tokens, width] each out."""

    tasks: tuple[str, ...] = ("multivector",)
    prompts: tuple[str, ...] = INPUT_TYPES
    auto_class = "AutoModel"

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.inputs: tuple[str, ...] = tuple(facts["inputs"])
        self._layers: list[Layer] = facts["layers"]
        self._projection = Projection(files.described)
        self.dimensions: int = self._layers[-1]["width"] if self._layers else facts["hidden_size"]
        self._formats = NumberFormats(files, self.dimensions, steps=False)
        self.output = "" if facts["torch_only"] else "last_hidden_state"
        self.counts_unattended = facts["sides"]["query"]["expanded"] and not facts["sides"]["query"]["attended"]
        self._sides = {name: _side(files, name) for name in INPUT_TYPES}
        self.max_length = max(side.length for side in self._sides.values())
        bounds = [side.max_chars for side in self._sides.values()]
        self.max_chars = max(bounds) if all(bounds) else 0

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `dimensions`, `input_type`, which is query or document, the default, and where texts are cut."""
        check_task(task, self.tasks)
        check_names(options, _OPTIONS)
        count_of(options, "dimensions", self.dimensions)
        self._formats.check(options)
        side = input_type_of(options)
        self._sides[side].cut(options)
        return Head(task, variant=side)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize, as queries or as documents."""
        side = self._sides[head.variant]
        return side.prepare(items, side.cut(options))

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right; what is not attended to may still be kept."""
        mask = mask_of(rows)
        attended = np.concatenate([part.fixed["attended"] for part in rows])
        batch = {
            "input_ids": pad(rows, "input_ids", mask, self._sides["document"].pad_id),
            "attention_mask": (np.arange(mask.shape[1]) < attended[:, None]).astype(np.int64),
            "kept": pad(rows, "kept", mask, 0).astype(np.bool_),
        }
        if "token_type_ids" in self.inputs:
            batch["token_type_ids"] = np.zeros(mask.shape, np.int64)
        return batch

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """
        Run the network: [n, length, hidden].

        The vectors of an expansion count though no token attends to them, so an engine must not pass over what the
        attention mask leaves out; by a call of its own, a family has torch alone and graphs made with it.
        """
        return network(**inputs)[0]

    def reduce(self, output: Any, batch: Any) -> Any:
        """Project and normalise each token's vector; those that are not kept become 0: [n, length, width]."""
        for layer in self._layers:
            output = self._projection.run(output, layer)
        return unit(output) * batch["kept"][..., None]

    def split(self, outputs: Array, batch: Batch) -> list[Array]:
        """Give each item the vectors of its kept tokens."""
        return [matrix[kept] for matrix, kept in zip(outputs, batch["kept"], strict=True)]

    def finish(self, head: Head, outputs: list[Array], options: dict[str, Any]) -> list[Array]:
        """Cut vectors to `dimensions`, make them of length 1 again, and quantise."""
        return [self._formats.apply(cut(matrix, options.get("dimensions")), options) for matrix in outputs]


def _side(files: ModelFiles, name: str) -> Side:
    """Make one side; the user's own limit is that of documents, as queries may be filled up to theirs."""
    facts, positions = files.extra["sides"][name], files.extra["positions"]
    usual = min(facts["length"], positions or facts["length"])
    return Side(files, facts, limit_of(files, usual) if name == "document" else usual)
