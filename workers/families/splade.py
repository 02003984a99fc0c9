"""
SPLADE: texts to sparse vectors over the model's vocabulary, by a network that was made to guess masked words.

The packing and the rules are those of sentence-transformers' SparseEncoder; the method is that of
https://arxiv.org/abs/2109.10086 (max) and https://arxiv.org/abs/2107.05720 (sum). Where a Router says so, queries run
no network: their tokens have a weight each, as in https://arxiv.org/abs/2411.04403.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
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
from infinity_pool.workers.text.options import check_names, check_task, count_of, input_type_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.projection import read_tensors
from infinity_pool.workers.text.prompts import Prompts, read_prompts
from infinity_pool.workers.text.routes import Modules, check_routes, routes_of
from infinity_pool.workers.text.saved_tokenizer import load, read_backend, saved_facts
from infinity_pool.workers.text.sparse import Sparse, heaviest, sparse_of
from infinity_pool.workers.text.tokenizer import Tokenizer

_STRATEGIES = ("max", "sum")
_ACTIVATIONS = {"relu": 1, "log1p_relu": 2}  # how often the logarithm is taken
_TRANSFORMERS = ("MLMTransformer", "Transformer")
_STATIC = "SparseStaticEmbedding"
_WEIGHTS = "queries.npy"
_UNLIMITED = 32_768  # tokens of a query, where the files name no limit


def serves(files: ModelFiles) -> Claim:
    """Claim models whose modules are a network and SpladePooling; a bare MaskedLM may be anything."""
    modules, static = _modules(files.path)
    kinds = [kind.rpartition(".")[2] for kind, _ in modules]
    ours = len(kinds) == 2 and kinds[0] in _TRANSFORMERS and kinds[1] == "SpladePooling"
    return Claim.OWN if ours and (static is None or static[0].endswith(f".{_STATIC}")) else Claim.NONE


def _modules(path: Path) -> tuple[Modules, tuple[str, str] | None]:
    """Give the modules of documents and, where queries have one of their own, that."""
    routes = routes_of(path)
    queries = routes.get("query", [])
    return (routes["document"], queries[0]) if len(queries) == 1 and "document" in routes else (modules_of(path), None)


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`, and give how logits become weights."""
    from infinity_pool.workers.text.reading import read_text_model

    modules, static = _modules(files.path)
    if not (modules or (files.config.get("architectures") or [""])[0].endswith("ForMaskedLM")):
        raise InvalidInput(f"model {files.spec!r} is no *ForMaskedLM, which splade needs", param="family")
    network = {"network": modules[0][1] if modules else ""}
    facts = network | read_text_model(replace(files, extra=network), folder, Splade.auto_class)
    if "attention_mask" not in facts["inputs"]:
        raise InvalidInput(f"the network of {files.spec!r} takes no attention_mask", param="model")
    described = read_object(files.path / "config_sentence_transformers.json")
    pooling = _read_pooling(read_object(files.path / modules[1][1] / "config.json") if modules else {})
    queries = _read_queries(files, folder, static[1], facts["hidden_size"]) if static else {}
    return facts | pooling | queries | read_prompts(files.path) | {"top_k": described.get("max_active_dims")}


def _read_queries(files: ModelFiles, folder: Path, place: str, width: int) -> dict[str, Any]:
    """Write the weights of queries' tokens to `folder`; give their limit."""
    check_routes(files.path)
    weights = read_tensors(files.path / place, ("weight",)).get("weight")
    made = load(replace(files, extra={"network": place}), {})
    document = read_backend(folder, saved_facts(folder))
    if weights is None or len(weights) > width or weights.min() < 0 or made.get_vocab() != document.get_vocab():
        raise InvalidInput(f"{place} has no weights of its own, or tokens other than documents have", param="model")
    np.save(folder / _WEIGHTS, np.pad(weights, (0, width - len(weights))))
    return {"query_length": int(min(made.model_max_length, _UNLIMITED))}


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
        self._queries: Tokenizer | None = None
        if "query_length" in facts:
            self.output = ""
            self.inputs += (_STATIC,)
            self._queries = Tokenizer(files, facts["query_length"], special=False, vocabulary=facts["vocab_size"])
            self._weights_file = files.described / _WEIGHTS

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `top_k`, the prompt, and where texts are cut."""
        check_task(task, self.tasks)
        check_names(options, ("top_k", *Prompts.OPTIONS, *CUTS))
        count_of(options, "top_k", self.dimensions)
        self._prompts.choose(options)
        side = "" if self._queries is None else input_type_of(options)
        self._tokenizer_of(side).cut(options)
        return Head(task, variant=side)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize, with the prompt in front of texts."""
        tokenizer = self._tokenizer_of(head.variant)
        tokens = tokenizer.encode(items, self._prompts.choose(options), tokenizer.cut(options))
        self._prompts.refuse_ids(items, options)
        tokens.refuse_empty()
        fixed = {_STATIC: np.ones(len(items), np.bool_)} if tokenizer is self._queries else {}
        return Rows(tokens.lengths, {"input_ids": tokens.ids}, fixed, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right."""
        batch = text_batch(rows, mask_of(rows), self.inputs, self._tokenizer.pad_id)
        return batch | ({_STATIC: np.ones(len(batch["input_ids"]), np.bool_)} if _STATIC in rows[0].fixed else {})

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """
        Run the network and pool its logits over the tokens: [n, vocabulary].

        They are the largest thing by far, so they are pooled before they are copied or converted, and within a graph
        that is exported. The largest logit has the largest weight, so for max the logarithm may come later.
        """
        if _STATIC in inputs:  # which of the vocabulary's tokens there are
            counts = inputs["attention_mask"].new_zeros(len(inputs["input_ids"]), self.dimensions)
            return counts.scatter_add(1, inputs["input_ids"], inputs["attention_mask"]).clamp(max=1)
        logits = network(**inputs)[0]
        padding = inputs["attention_mask"][..., None] == 0
        if self._strategy == "max":
            return logits.masked_fill_(padding, float("-inf")).amax(1)
        return self._weights(logits.float().masked_fill_(padding, 0)).sum(1)

    def reduce(self, output: Any, batch: Any) -> Any:
        """Turn the largest logits into weights, where that is still to do, or tokens into theirs: [n, vocabulary]."""
        if _STATIC in batch:
            return output * output.new_tensor(self._static)
        return self._weights(output) if self._strategy == "max" else output

    def split(self, outputs: Array, batch: Batch) -> list[Sparse]:
        """Give each item the places over 0."""
        return [sparse_of(row) for row in outputs]

    def finish(self, head: Head, outputs: list[Sparse], options: dict[str, Any]) -> list[Sparse]:
        """Keep the `top_k` heaviest, by default as many as the model's own files say."""
        count = options.get("top_k") or self._top_k
        return [heaviest(vector, count) for vector in outputs]

    @cached_property
    def _static(self) -> Array:
        return np.asarray(np.load(self._weights_file))

    def _tokenizer_of(self, side: str) -> Tokenizer:
        return self._queries if self._queries is not None and side == "query" else self._tokenizer

    def _weights(self, logits: Any) -> Any:
        weights = logits.clip(0)
        for _ in range(self._logarithms):
            weights = np.log1p(weights) if isinstance(weights, np.ndarray) else weights.log1p()
        return weights
