"""
Language models that rerank: asked whether a document answers a query, the score is how much they say "yes", not "no".

The recipes are those of the model cards: of Qwen3-Reranker the softmax of the logits of both words, of mxbai-rerank-v2
their difference.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.activations import activation
from infinity_pool.workers.text.cutting import CUTS, Cut, cut_of
from infinity_pool.workers.text.options import Options, check_names, check_task
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.saved_tokenizer import load, saved_options
from infinity_pool.workers.text.tokenizer import Tokenizer, max_length_of


class _Recipe(NamedTuple):
    """
    How a model is asked: `before`, the query, the document, `after`; `words` are its no and yes.

    `apart` says that query and document are tokenized each by itself, as each part of `after` is.
    """

    words: tuple[str, str]
    before: str
    after: tuple[str, ...]
    query: str
    instructed: str
    instruction: str
    document: str = ""
    apart: bool = False
    activation: str = "Sigmoid"


_RECIPES = {
    "qwen3": _Recipe(
        words=("no", "yes"),
        before="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
        after=("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",),
        instructed="<Instruct>: {}\n",
        instruction="Given a web search query, retrieve relevant passages that answer the query",
        query="<Query>: {}\n<Document>: ",
    ),
    "qwen2": _Recipe(
        words=("0", "1"),
        before="<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n",
        after=(
            "\n",
            "You are a search relevance expert who evaluates how well documents match search queries. For each "
            "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
            "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:",
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
        instructed="instruction: {}\n",
        instruction="",
        query="query: {}",
        document="document: ",
        apart=True,
        activation="Identity",
    ),
}
"""Recipes by `model_type`: that of Qwen3-Reranker, and of mxbai-rerank-v2."""

_BETWEEN = "\n"  # query and document that are tokenized apart
_MAX_LENGTH = 8192  # of both cards; more only if it is asked for
_OPTIONS = ("instruction", "raw_scores", *CUTS)


def serves(files: ModelFiles) -> Claim:
    """Claim language models that CrossEncoder saved, or whose own name says that they rerank."""
    config = files.config
    causal = (config.get("architectures") or [""])[0].endswith("ForCausalLM")
    if not causal or config.get("model_type") not in _RECIPES:
        return Claim.NONE
    saved = read_object(files.path / "config_sentence_transformers.json").get("model_type") == "CrossEncoder"
    return Claim.OWN if saved or "rerank" in files.spec.rpartition("/")[2].lower() else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`; give the limits, and the ids of the prompt and of the two words."""
    from infinity_pool.workers.text.reading import read_text_model

    kind = files.config.get("model_type")
    if kind not in _RECIPES:
        raise InvalidInput(f"causal_reranker serves {' and '.join(_RECIPES)}, not {kind}", param="model")
    recipe = _RECIPES[kind]
    facts = read_text_model(files, folder, CausalReranker.auto_class)
    tokenizer = load(files, saved_options(folder))
    words = [_ids(tokenizer, word) for word in recipe.words]
    if any(len(word) != 1 for word in words):
        raise InvalidInput(f"the tokenizer of {files.spec!r} has no words {' and '.join(recipe.words)}", param="model")
    ids = {"before": _ids(tokenizer, recipe.before), "between": _ids(tokenizer, _BETWEEN) if recipe.apart else []}
    ids["after"] = [number for part in recipe.after for number in _ids(tokenizer, part)]
    limit = min(facts["max_length"], _MAX_LENGTH)
    return facts | {"words": [word[0] for word in words], "max_length": limit, "recipe": kind} | ids


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return CausalReranker(files)


class CausalReranker(Family):
    """Pairs of query and document in, one score each out: [n]."""

    tasks: tuple[str, ...] = ("rerank",)
    auto_class = "AutoModelForCausalLM"
    output = "logits"
    dimensions = 1
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.max_length = max_length_of(files)
        self._words: list[int] = facts["words"]
        self._recipe = _RECIPES[facts["recipe"]]
        self._before, self._between, self._after = (
            np.array(facts[name], np.int32) for name in ("before", "between", "after")
        )
        self._room = self.max_length - len(self._before) - len(self._after)
        if self._room < 1:
            least = self.max_length - self._room
            raise InvalidInput(f"max_length must be over {least}, the prompt's tokens", param="max_length")
        self._activation = activation(self._recipe.activation)
        self._tokenizer = Tokenizer(files, self._room, special=False)
        self.max_chars = self._tokenizer.max_chars

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check the task, `instruction`, `raw_scores` and where documents are cut."""
        check_task(task, self.tasks)
        check_names(options, _OPTIONS)
        for name, kind, told in (("instruction", str, "a text"), ("raw_scores", bool, "true or false")):
            if not isinstance(options.get(name, kind()), kind):
                raise InvalidInput(f"{name} must be {told}, not {options[name]!r}", param=name)
        self._cut(options)
        return Head(task)

    def example(self, text: str) -> Item:
        """Make a pair with a short query."""
        return ["a text", text]

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize query and document, cut the document, and put the prompt around them."""
        starts = [self._start(item, index, options) for index, item in enumerate(items)]
        documents = [self._recipe.document + item[1] for item in items]
        rows, truncated = (self._apart if self._recipe.apart else self._together)(starts, documents, self._cut(options))
        ids = np.concatenate([part for row in rows for part in (self._before, row, self._after)])
        around = self.max_length - self._room
        lengths = np.fromiter((len(row) + around for row in rows), np.int32, len(rows))
        return Rows(lengths, {"input_ids": ids}, {}, truncated)

    def _together(self, starts: Sequence[str], documents: Sequence[str], cut: Cut) -> tuple[list[Array], Array]:
        """Tokenize query and document as one text."""
        whole = [start + document for start, document in zip(starts, documents, strict=True)]
        tokens = self._tokenizer.encode(whole, cut=Cut(cut.length, left=False))
        rows = np.split(tokens.ids, np.cumsum(tokens.lengths[:-1]))
        for index in np.flatnonzero(tokens.truncated).tolist():
            start = self._checked_start(starts[index], index, cut)
            if cut.left:
                rows[index] = self._with_end(start, documents[index], cut)
        return rows, tokens.truncated

    def _apart(self, starts: Sequence[str], documents: Sequence[str], cut: Cut) -> tuple[list[Array], Array]:
        """Tokenize query and document each by itself."""
        tokens = self._tokenizer.encode(documents, cut=cut)
        truncated = tokens.truncated.copy()
        rows = np.split(tokens.ids, np.cumsum(tokens.lengths[:-1]))
        for index, start in enumerate(starts):
            head = self._checked_start(start, index, cut)
            room = cut.length - len(head)
            truncated[index] |= len(rows[index]) > room
            kept = rows[index][-room:] if cut.left else rows[index][:room]
            rows[index] = np.concatenate([head, kept])
        return rows, truncated

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right: no token looks there."""
        return text_batch(rows, mask_of(rows), self.inputs, self._tokenizer.pad_id)

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Give the logits of the two words after the last token, [n, 2]; those of all others are not computed."""
        hidden = network.base_model(**inputs)[0]
        last = inputs["attention_mask"].sum(-1) - 1
        rows = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]
        return rows @ network.get_output_embeddings().weight[self._words].T

    def reduce(self, output: Any, batch: Any) -> Any:
        """Nothing is left to cut down."""
        return output

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array:
        """Give yes its part of the softmax of both, or the difference of the logits, which is the raw score."""
        difference = outputs[:, 1] - outputs[:, 0]
        return np.asarray(difference if options.get("raw_scores") else self._activation(difference))

    def _cut(self, options: Options) -> Cut:
        """Give where query and document are cut, without the prompt around them."""
        around = self.max_length - self._room
        whole = cut_of(options, Cut(self.max_length, self._tokenizer.usual.left), around)
        return Cut(whole.length - around, whole.left)

    def _checked_start(self, start: str, index: int, cut: Cut) -> Array:
        """Give the tokens before the document; refuse a query that leaves it no room."""
        ids = np.concatenate([self._tokenizer.encode([start]).ids, self._between])
        if len(ids) >= cut.length:
            limit = f"{cut.length + self.max_length - self._room}"
            limit += " tokens of the model" if cut.length == self._room else " tokens that were asked for"
            raise InvalidInput(f"the query leaves no room for a document in the {limit}", param="query", item=index)
        return ids

    def _with_end(self, start: Array, document: str, cut: Cut) -> Array:
        """Give the tokens before the document, and as many of its last ones as there is room for."""
        end = self._tokenizer.encode([document], cut=Cut(cut.length - len(start), left=True)).ids
        return np.concatenate([start, end])

    def _start(self, item: Item, index: int, options: dict[str, Any]) -> str:
        """Give what stands before the document."""
        if not (isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)):
            raise InvalidInput("must be a pair of two texts, the query and the document", item=index)
        instruction = options.get("instruction", self._recipe.instruction)
        return (self._recipe.instructed.format(instruction) if instruction else "") + self._recipe.query.format(item[0])
