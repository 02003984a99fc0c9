"""Networks that score a text, or a pair of texts, for each of their labels: transformers' *SequenceClassification."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import Batch, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.activations import Activation, activation
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.options import check_names, check_task
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.pairs import PairTokenizer, save_frames
from infinity_pool.workers.text.tokenizer import max_length_of

_ARCHITECTURE = "ForSequenceClassification"
_OPTION = "raw_scores"


def scores_sequences(files: ModelFiles) -> bool:
    """Whether a model's network gives scores, by the name of its class."""
    return bool((files.config.get("architectures") or [""])[0].endswith(_ARCHITECTURE))


def count_labels(files: ModelFiles) -> int:
    """Count the labels that config.json names; without a word of them there are two, as transformers has it."""
    return len(files.config.get("id2label") or ()) or int(files.config.get("num_labels") or 2)


def read_scorer(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write a model's tokenizer to `folder`; give what `Scorer` needs, but for the name of the `activation`."""
    from infinity_pool.workers.networks.network import read_config
    from infinity_pool.workers.text.reading import read_text_model

    facts = read_text_model(files, folder, Scorer.auto_class)
    save_frames(files, folder)
    names = read_config(files).id2label
    return facts | {"labels": [str(names[place]) for place in sorted(names)]}


class Scorer(Family):
    """
    Texts and pairs in, scores out: [n, labels] to classify; to rerank [n], of pairs only, and by the one label.

    The activation is a fact of the model, by its name in torch.nn; the option `raw_scores` leaves it out.
    """

    auto_class = "AutoModelForSequenceClassification"
    output = "logits"

    def __init__(self, files: ModelFiles, task: str) -> None:
        facts = files.extra
        self.tasks: tuple[str, ...] = (task,)
        self.labels: tuple[str, ...] = tuple(facts["labels"]) if task == "classify" else ()
        self.dimensions = len(facts["labels"])
        self.max_length = max_length_of(files)
        self.inputs: tuple[str, ...] = tuple(facts["inputs"])
        sides = ("query", "document") if task == "rerank" else ("first text", "second text")
        self._tokenizer = PairTokenizer(files, self.max_length, sides)
        self.max_chars = self._tokenizer.max_chars
        self._activation = score_activation(facts["activation"])

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check the task, `raw_scores` and where texts are cut."""
        check_task(task, self.tasks)
        check_names(options, (_OPTION, *CUTS))
        if not isinstance(options.get(_OPTION, False), bool):
            raise InvalidInput(f"{_OPTION} must be true or false, not {options[_OPTION]!r}", param=_OPTION)
        self._tokenizer.cut(options)
        return Head(task)

    def example(self, text: str) -> Item:
        """Make a pair for a reranker, with a short query."""
        return ["a text", text] if "rerank" in self.tasks else text

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize."""
        if head.task == "rerank":
            for index, item in enumerate(items):
                if isinstance(item, str):
                    raise InvalidInput("must be a pair of two texts, the query and the document", item=index)
        tokens = self._tokenizer.encode(items, self._tokenizer.cut(options))
        ragged = {"input_ids": tokens.ids, "token_type_ids": tokens.types}
        return Rows(tokens.lengths, {name: ragged[name] for name in ragged.keys() & self.inputs}, {}, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right."""
        return text_batch(rows, mask_of(rows), self.inputs, self._tokenizer.pad_id)

    def reduce(self, output: Any, batch: Any) -> Any:
        """Nothing is left to cut down: the network gives [n, labels]."""
        return output

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array:
        """Make scores of logits, unless `raw_scores` are wanted."""
        scores = outputs if options.get(_OPTION) else self._activation(outputs)
        return np.asarray(scores[:, 0] if head.task == "rerank" else scores)


def score_activation(name: str) -> Activation:
    """Give the function of that class of torch.nn for an array [n, labels]; raises InvalidInput if it is not served."""
    return _softmax if name == "Softmax" else activation(name)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
