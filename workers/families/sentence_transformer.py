"""Text encoders as sentence-transformers packs them, or as transformers' AutoModel alone loads them: text to vector."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.files.table import NETWORK
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.modules import Step, modules_of, read_steps
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.pooled import Pooled
from infinity_pool.workers.text.prompts import read_prompts
from infinity_pool.workers.text.static import read_static_model
from infinity_pool.workers.text.token_ids import is_ids

_log = logging.getLogger(__name__)

_PROMPTS_KEPT = 1024  # whose tokens are not counted again


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


class SentenceTransformer(Pooled):
    """
    Texts in, one vector each out: equal to sentence-transformers' `encode`.

    With the pooling "none" it is a matrix [tokens, hidden] each, as with `output_value="token_embeddings"`.
    """

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self._count_prompt = lru_cache(_PROMPTS_KEPT)(self._tokens_of_prompt)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize, with the prompt in front of texts."""
        prompt = self._prompts.choose(options)
        tokens = self._tokenizer.encode(items, prompt, self._tokenizer.cut(options))
        self._prompts.refuse_ids(items, options)
        tokens.refuse_empty()
        fixed = self.marks(head, len(items))
        if not self._steps.includes_prompt:
            length = self._count_prompt(prompt)
            fixed["prompt_length"] = np.array([0 if is_ids(item) else length for item in items], np.int32)
        return Rows(tokens.lengths, {"input_ids": tokens.ids}, fixed, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right, whatever the tokenizer would: no token looks there, and positions stay."""
        return text_batch(rows, mask_of(rows), self.inputs, self._tokenizer.pad_id) | self.pooling_of(rows)

    def _tokens_of_prompt(self, prompt: str) -> int:
        """Count the tokens that belong to a prompt: all of it alone, without a special token at its end."""
        ids = self._tokenizer.encode([prompt]).ids.tolist() if prompt else []
        return len(ids) - (bool(ids) and ids[-1] in self._tokenizer.special_ids)
