"""Rerankers that read query and document together, with sentence-transformers' CrossEncoder as the reference."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import Claim, Family, ModelFiles
from infinity_pool.workers.text.modules import modules_of
from infinity_pool.workers.text.scoring import Scorer, count_labels, read_scorer, score_activation, scores_sequences

_log = logging.getLogger(__name__)

_OWN_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")  # of config.json


def serves(files: ModelFiles) -> Claim:
    """Claim networks that give one score, and those saved by CrossEncoder, however many they give."""
    if not scores_sequences(files):
        return Claim.NONE
    saved = _settings(files).get("model_type") == "CrossEncoder"
    if saved or any(files.config.get(key) is not None for key in _OWN_KEYS):
        return Claim.OWN
    return Claim.GENERAL if count_labels(files) == 1 else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`, and give all else that `make` needs."""
    modules = modules_of(files.path)
    if more := [kind for kind, _ in modules[1:]]:
        raise InvalidInput(f"module {more[0]!r} of a cross-encoder is not served, only its network", param="model")
    if _settings(files).get("default_prompt_name"):
        raise InvalidInput("a cross-encoder with a default prompt is not served", param="model")
    network = {"network": modules[0][1] if modules else ""}
    facts = network | read_scorer(replace(files, extra=network), folder)
    return facts | {"activation": _activation(files, len(facts["labels"]))}


def make(files: ModelFiles) -> Family:
    """Make the family of a described model: with several labels, such as of entailment, it can only classify."""
    return Scorer(files, "rerank" if len(files.extra["labels"]) == 1 else "classify")


def _settings(files: ModelFiles) -> dict[str, Any]:
    return read_object(files.path / "config_sentence_transformers.json")


def _activation(files: ModelFiles, labels: int) -> str:
    """Name the activation by CrossEncoder's rule: the newest of the places where it was ever written, or by labels."""
    older = files.config.get("sentence_transformers") or {}
    named = [
        _settings(files).get("activation_fn"),
        older.get("activation_fn", files.config.get("sbert_ce_default_activation_function")),
    ]
    for path in filter(None, named):
        if str(path).startswith("torch."):
            name = str(path).rpartition(".")[2]
            score_activation(name)  # refuses what is not served
            return name
        _log.warning("model %r: its activation %r is code of its own, and not run", files.spec, path)
    return "Sigmoid" if labels == 1 else "Identity"
