"""Text encoders as sentence-transformers packs them, or as transformers' AutoModel alone loads them: text to vector."""

import logging
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.files.table import NETWORK
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.modules import Step, Steps, modules_of, read_steps, unit
from infinity_pool.workers.text.options import Options, check_names, check_task, count_of, flag_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.pooling import MODES, pooling_arrays
from infinity_pool.workers.text.prompts import Prompts, read_prompts
from infinity_pool.workers.text.quantising import OPTION, NumberFormats
from infinity_pool.workers.text.static import read_static_model
from infinity_pool.workers.text.token_ids import is_ids
from infinity_pool.workers.text.tokenizer import Tokenizer, max_length_of

_log = logging.getLogger(__name__)

_OPTIONS = ("dimensions", "normalize", "pooling", OPTION, *Prompts.OPTIONS, *CUTS)
_PROMPTS_KEPT = 1024  # whose tokens are not counted again
_RAW = "raw"  # the variant that leaves out the model's own Normalize
_NONE = "none"  # the pooling that leaves the tokens' vectors as they are


def serves(files: ModelFiles) -> Claim:
    """Claim models whose first module is one of text and, without modules, any plain network of text."""
    return Claim.GENERAL if _serves(files) else Claim.NONE


def _serves(files: ModelFiles) -> bool:
    if modules := modules_of(files.path):
        described = read_object(files.path / "config_sentence_transformers.json")
        kind = modules[0][0]
        ours = kind.startswith("sentence_transformers.") and kind.rpartition(".")[2] in ("Transformer", NETWORK)
        return ours and described.get("model_type", "SentenceTransformer") == "SentenceTransformer"
    config = files.config
    several = any(key in config for key in ("vision_config", "audio_config", "text_config"))
    architecture = (config.get("architectures") or ["Model"])[0]
    plain = architecture.endswith(("Model", "ForMaskedLM", "ForCausalLM", "ForPreTraining"))
    return "model_type" in config and plain and not several and not config.get("is_encoder_decoder")


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer and the modules' weights to `folder`, and give all else that `make` needs."""
    modules = modules_of(files.path)
    network = {"network": modules[0][1] if modules else ""}
    facts = network | _read(replace(files, extra=network), folder, modules)
    described = read_object(files.path / "config_sentence_transformers.json")
    return facts | read_prompts(files.path) | {"truncate_dim": described.get("truncate_dim")}


def _read(files: ModelFiles, folder: Path, modules: Sequence[tuple[str, str]]) -> dict[str, Any]:
    if modules and modules[0][0].endswith(NETWORK):
        return read_static_model(files, folder)
    from infinity_pool.workers.text.reading import read_text_model  # late: it brings transformers along

    facts = read_text_model(files, folder, SentenceTransformer.auto_class)
    return facts | {"steps": read_steps(files.path, folder) if modules else _default_steps(files, facts)}


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return SentenceTransformer(files)


def _default_steps(files: ModelFiles, facts: dict[str, Any]) -> list[Step]:
    """Choose the pooling of a network that comes without modules, as sentence-transformers does."""
    if facts["chat_template"]:
        raise InvalidInput(
            f"model {files.spec!r} has a chat template and no modules.json that says how texts become vectors",
            param="model",
        )
    decoder = (files.config.get("architectures") or [""])[0].endswith("ForCausalLM")
    mode = "lasttoken" if decoder and files.config.get("is_causal", True) else "mean"
    _log.warning("model %r has no modules.json: pooling is %s, and vectors are not normalised", files.spec, mode)
    return [{"kind": "Pooling", "number": 1, "modes": [mode], "include_prompt": True}]


class SentenceTransformer(Family):
    """
    Texts in, one vector each out: equal to sentence-transformers' `encode`.

    With the pooling "none" it is a matrix [tokens, hidden] each, as with `output_value="token_embeddings"`.
    """

    tasks: tuple[str, ...] = ("embed",)
    auto_class: str = "AutoModel"

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
        self._count_prompt = lru_cache(_PROMPTS_KEPT)(self._tokens_of_prompt)

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `dimensions`, `normalize`, `pooling`, `embedding_dtype`, the prompt, and where texts are cut."""
        check_task(task, self.tasks)
        if not options:
            return Head(task)
        check_names(options, _OPTIONS)
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

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize, with the prompt in front of texts."""
        prompt = self._prompts.choose(options)
        tokens = self._tokenizer.encode(items, prompt, self._tokenizer.cut(options))
        self._prompts.refuse_ids(items, options)
        tokens.refuse_empty()
        fixed = {mark: np.ones(len(items), np.bool_) for mark in head.variant.split()}
        if not self._steps.includes_prompt:
            length = self._count_prompt(prompt)
            fixed["prompt_length"] = np.array([0 if is_ids(item) else length for item in items], np.int32)
        return Rows(tokens.lengths, {"input_ids": tokens.ids}, fixed, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right, whatever the tokenizer would: no token looks there, and positions stay."""
        mask = mask_of(rows)
        batch = text_batch(rows, mask, self.inputs, self._tokenizer.pad_id)
        if _NONE in rows[0].fixed:
            return batch | {_NONE: mask}
        prompts = None
        if not self._steps.includes_prompt:
            prompts = np.concatenate([part.fixed["prompt_length"] for part in rows])
        marks = {mark: np.ones(len(mask), np.bool_) for mark in (_RAW, *MODES) if mark in rows[0].fixed}
        return batch | marks | pooling_arrays(_modes(rows[0].fixed) or self._steps.modes, mask, prompts)

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

    def _tokens_of_prompt(self, prompt: str) -> int:
        """Count the tokens that belong to a prompt: all of it alone, without a special token at its end."""
        ids = self._tokenizer.encode([prompt]).ids.tolist() if prompt else []
        return len(ids) - (bool(ids) and ids[-1] in self._tokenizer.special_ids)


def _modes(marks: Container[str]) -> list[str]:
    """Give the pooling that a batch is marked with, if any."""
    return [mode for mode in MODES if mode in marks]
