"""
What families share whose network gives each token a vector, and whose other modules make one vector of them.

It is what follows the network in a sentence-transformers folder, with the options that a request has for it.
"""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.table import NETWORK
from infinity_pool.workers.interface import Batch, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.modules import Steps, unit
from infinity_pool.workers.text.options import Options, check_names, check_task, count_of, flag_of
from infinity_pool.workers.text.padding import mask_of
from infinity_pool.workers.text.pooling import MODES, pooling_arrays
from infinity_pool.workers.text.prompts import Prompts
from infinity_pool.workers.text.quantising import OPTION, NumberFormats
from infinity_pool.workers.text.tokenizer import Tokenizer, max_length_of

_RAW = "raw"  # the variant that leaves out the model's own Normalize
_NONE = "none"  # the pooling that leaves the tokens' vectors as they are


class Pooled(Family):
    """
    Items in, one vector each out; with the pooling "none" it is a matrix [tokens, hidden] each.

    A family says how items become `Rows`, marked with `marks`, and adds `pooling_of` to its batches.
    """

    tasks: tuple[str, ...] = ("embed",)
    auto_class: str = "AutoModel"
    options: tuple[str, ...] = ("dimensions", "normalize", "pooling", OPTION, *Prompts.OPTIONS)

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.max_length = max_length_of(files)
        self.auto_class = facts.get("auto_class", self.auto_class)
        self.inputs: tuple[str, ...] = tuple(facts["inputs"])
        self._tokenizer = Tokenizer(
            files, self.max_length, special=facts.get("special", True), vocabulary=facts["vocab_size"]
        )
        self.max_chars = self._tokenizer.max_chars
        self._prompts = Prompts(facts)
        self.prompts = self._prompts.names
        self._steps = Steps(facts["steps"], files.described, facts["hidden_size"])
        self._hidden_size: int = facts["hidden_size"]
        self.dimensions: int = min(self._steps.width, facts["truncate_dim"] or self._steps.width)
        self._formats = NumberFormats(files, self.dimensions)

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `dimensions`, `normalize`, `pooling`, `embedding_dtype`, the prompt, and where texts are cut."""
        check_task(task, self.tasks)
        if not options:
            return Head(task)
        check_names(options, (*self.options, *CUTS))
        pooling = self._pooling(options)
        width = self._hidden_size if pooling == _NONE else min(self.dimensions, self._steps.width_by(pooling))
        count_of(options, "dimensions", width)
        self._prompts.choose(options)
        self._tokenizer.cut(options)
        normalize = flag_of(options, "normalize")
        raw = normalize is False and self._steps.normalizes and pooling != _NONE
        changed = [] if normalize in (None, self._steps.normalizes) else ["normalize"]
        self._formats.check(options, *changed, *(["pooling"] if pooling else []))
        return Head(task, variant=f"{_RAW} {pooling}".strip() if raw else pooling)

    def marks(self, head: Head, count: int) -> dict[str, Array]:
        """Give the fixed arrays that say of so many items what they are run for."""
        return {mark: np.ones(count, np.bool_) for mark in head.variant.split()}

    def pooling_of(self, rows: Sequence[Rows]) -> Batch:
        """Give what pooling needs of a batch, padded on the right; prompts are left out where rows say their length."""
        mask = mask_of(rows)
        if _NONE in rows[0].fixed:
            return {_NONE: mask}
        prompts = None
        if "prompt_length" in rows[0].fixed:
            prompts = np.concatenate([part.fixed["prompt_length"] for part in rows])
        marks = {mark: np.ones(len(mask), np.bool_) for mark in (_RAW, *MODES) if mark in rows[0].fixed}
        return marks | pooling_arrays(_modes(rows[0].fixed) or self._steps.modes, mask, prompts)

    def reduce(self, output: Any, batch: Any) -> Any:
        """Pool, and run the modules that follow: [n, length, hidden] to [n, width]; or leave it as it is."""
        if _NONE in batch:
            return output
        return self._steps.run(output, batch, _modes(batch), normalize=_RAW not in batch)

    def split(self, outputs: Array, batch: Batch) -> Array | list[Any]:
        """Give each item its vector, or those of its tokens."""
        if _NONE not in batch:
            return outputs
        return [matrix[kept] for matrix, kept in zip(outputs, batch[_NONE], strict=True)]

    def finish(self, head: Head, outputs: Any, options: dict[str, Any]) -> Array | list[Any]:
        """Cut vectors to `dimensions`, make what was normalised, or is to be, of length 1 again, and quantise."""
        if head.variant == _NONE:
            return [self._finish_tokens(matrix, options) for matrix in outputs]
        width = options.get("dimensions") or self.dimensions
        cut = outputs[:, :width]
        wanted = options.get("normalize")
        again = self._steps.normalizes and _RAW not in head.variant.split() and options.get("dimensions")
        return self._formats.apply(np.asarray(unit(cut)) if wanted or again else cut, options)

    def _finish_tokens(self, matrix: Array, options: Options) -> Array:
        cut = matrix[:, : options.get("dimensions") or self._hidden_size]
        return self._formats.apply(np.asarray(unit(cut)) if options.get("normalize") else cut, options)

    def _pooling(self, options: Options) -> str:
        """Give the pooling that was asked for in place of the model's own, else nothing."""
        mode = options.get("pooling")
        if mode is None or self._steps.modes == [mode]:
            return ""
        if mode not in (*MODES, _NONE):
            raise InvalidInput(f"pooling must be one of {', '.join(MODES)}, {_NONE}, not {mode!r}", param="pooling")
        if not (self._steps.may_pool_by_one or mode == _NONE) or self.auto_class == NETWORK:
            raise InvalidInput("this model's vectors come from its own pooling alone", param="pooling")
        return str(mode)


def _modes(marks: Container[str]) -> list[str]:
    """Give the pooling that a batch is marked with, if any."""
    return [mode for mode in MODES if mode in marks]
