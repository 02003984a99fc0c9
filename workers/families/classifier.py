"""Classifiers of texts, single- and multi-label, with transformers' text-classification pipeline as the reference."""

from pathlib import Path
from typing import Any

from infinity_pool.workers.interface import Claim, Family, ModelFiles
from infinity_pool.workers.text.scoring import Scorer, count_labels, read_scorer, scores_sequences

_ACTIVATIONS = {
    "regression": "Identity",
    "multi_label_classification": "Sigmoid",
    "single_label_classification": "Softmax",
}
"""By the `problem_type` in config.json."""


def serves(files: ModelFiles) -> Claim:
    """Claim networks that give several scores."""
    return Claim.GENERAL if scores_sequences(files) and count_labels(files) > 1 else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`, and give all else that `make` needs."""
    facts = read_scorer(files, folder)
    return facts | {"activation": _activation(files.config.get("problem_type"), len(facts["labels"]))}


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return Scorer(files, "classify")


def _activation(problem: str | None, labels: int) -> str:
    """Apply the pipeline's rule."""
    return _ACTIVATIONS.get(problem or "", "Sigmoid" if labels == 1 else "Softmax")
