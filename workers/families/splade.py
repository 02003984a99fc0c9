"""
SPLADE: texts to sparse vectors over the model's vocabulary, by a network that was made to guess masked words.

The packing and the rules are those of sentence-transformers' SparseEncoder; the method is that of
https://arxiv.org/abs/2109.10086 (max) and https://arxiv.org/abs/2107.05720 (sum).
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
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.modules import modules_of
from infinity_pool.workers.text.options import check_names, check_task, count_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.prompts import Prompts, read_prompts
from infinity_pool.workers.text.sparse import Sparse, heaviest, sparse_of
from infinity_pool.workers.text.tokenizer import Tokenizer

_STRATEGIES = ("max", "sum")
_ACTIVATIONS = {"relu": 1, "log1p_relu": 2}  # how often the logarithm is taken
_TRANSFORMERS = ("MLMTransformer", "Transformer")


def serves(files: ModelFiles) -> Claim:
    """Claim models whose modules are a network and SpladePooling; a bare MaskedLM may be anything."""
    kinds = [kind.rpartition(".")[2] for kind, _ in modules_of(files.path)]
    ours = len(kinds) == 2 and kinds[0] in _TRANSFORMERS and kinds[1] == "SpladePooling"
    return Claim.OWN if ours else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`, and give how logits become weights."""
    from infinity_pool.workers.text.reading import read_text_model

    modules = modules_of(files.path)
    if not (modules or (files.config.get("architectures") or [""])[0].endswith("ForMaskedLM")):
        raise InvalidInput(f"model {files.spec!r} is no *ForMaskedLM, which splade needs", param="family")
    network = {"network": modules[0][1] if modules else ""}
    facts = network | read_text_model(replace(files, extra=network), folder, Splade.auto_class)
    if "attention_mask" not in facts["inputs"]:
        raise InvalidInput(f"the network of {files.spec!r} takes no attention_mask", param="model")
    described = read_object(files.path / "config_sentence_transformers.json")
    pooling = _read_pooling(read_object(files.path / modules[1][1] / "config.json") if modules else {})
    return facts | pooling | read_prompts(files.path) | {"top_k": described.get("max_active_dims")}


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return Splade(files)


def _read_pooling(config: dict[str, Any]) -> dict[str, Any]:
    strategy = config.get("pooling_strategy", "max")
    activation = config.get("activation_function", "relu")
    if strategy not in _STRATEGIES:
        raise InvalidInput(f"SPLADE pooling {strategy!r} is not served; {', '.join(_STRATEGIES)} are", param="model")
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise InvalidInput(f"SPLADE activation {activation!r} is not served; {known} are", param="model")
    return {"strategy": strategy, "logarithms": _ACTIVATIONS[activation]}


class Splade(Family):
    """Texts in, one sparse vector each out: equal to SparseEncoder's `encode`."""

    tasks: tuple[str, ...] = ("sparse",)
    auto_class = "AutoModelForMaskedLM"
    output = "token_scores"

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.max_length = limit_of(files, facts["max_length"])
        self.inputs: tuple[str, ...] = tuple(facts["inputs"])
        self.dimensions: int = facts["hidden_size"]  # of the output: the vocabulary
        self._tokenizer = Tokenizer(files, self.max_length, vocabulary=facts["vocab_size"])
        self.max_chars = self._tokenizer.max_chars
        self._prompts = Prompts(facts)
        self.prompts = self._prompts.names
        self._strategy: str = facts["strategy"]
        self._logarithms: int = facts["logarithms"]
        self._top_k: int | None = facts["top_k"]

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `top_k`, the prompt, and where texts are cut."""
        check_task(task, self.tasks)
        check_names(options, ("top_k", *Prompts.OPTIONS, *CUTS))
        count_of(options, "top_k", self.dimensions)
        self._prompts.choose(options)
        self._tokenizer.cut(options)
        return Head(task)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize, with the prompt in front of texts."""
        tokens = self._tokenizer.encode(items, self._prompts.choose(options), self._tokenizer.cut(options))
        self._prompts.refuse_ids(items, options)
        tokens.refuse_empty()
        return Rows(tokens.lengths, {"input_ids": tokens.ids}, {}, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right."""
        return text_batch(rows, mask_of(rows), self.inputs, self._tokenizer.pad_id)

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """
        Run the network and pool its logits over the tokens: [n, vocabulary].

        They are the largest thing by far, so they are pooled before they are copied or converted, and within a graph
        that is exported. The largest logit has the largest weight, so for max the logarithm may come later.
        """
        logits = network(**inputs)[0]
        padding = inputs["attention_mask"][..., None] == 0
        if self._strategy == "max":
            return logits.masked_fill_(padding, float("-inf")).amax(1)
        return self._weights(logits.float().masked_fill_(padding, 0)).sum(1)

    def reduce(self, output: Any, batch: Any) -> Any:
        """Turn the largest logits into weights, where that is still to do: [n, vocabulary]."""
        return self._weights(output) if self._strategy == "max" else output

    def split(self, outputs: Array, batch: Batch) -> list[Sparse]:
        """Give each item the places over 0."""
        return [sparse_of(row) for row in outputs]

    def finish(self, head: Head, outputs: list[Sparse], options: dict[str, Any]) -> list[Sparse]:
        """Keep the `top_k` heaviest, by default as many as the model's own files say."""
        count = options.get("top_k") or self._top_k
        return [heaviest(vector, count) for vector in outputs]

    def _weights(self, logits: Any) -> Any:
        weights = logits.clip(0)
        for _ in range(self._logarithms):
            weights = np.log1p(weights) if isinstance(weights, np.ndarray) else weights.log1p()
        return weights
