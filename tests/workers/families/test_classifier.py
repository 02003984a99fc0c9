"""The scores are those of transformers' text-classification pipeline."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from tests.tiny_models import save_scorer, transformers
from tests.workers.conftest import load_here, prepare_here, run

TEXTS = [
    "hello world",
    "",
    "What is the capital of France?",
    "the quick brown fox jumps over the lazy dog " * 40,
    "数千年 \0 ﬁne\u0301 👩‍👩‍👧",
]
LABELS = ["anger", "joy", "fear", "trust"]


def reference(folder: Path, texts: list[Any] = TEXTS, **options: Any) -> Array:
    """Give [n, labels], in the order of the labels."""
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classify = transformers.pipeline("text-classification", model=network, tokenizer=tokenizer, device="cpu")
    names = list(network.config.id2label.values())
    rows = [classify(text, top_k=None, truncation=True, **options) for text in texts]
    return np.array([[{one["label"]: one["score"] for one in row}[name] for name in names] for row in rows])


def named(labels: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: place for place, label in enumerate(labels)}}


@pytest.mark.parametrize("problem", [None, "single_label_classification", "multi_label_classification", "regression"])
def test_every_kind_of_problem_in_any_mixture(problem: str | None, tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path, problem_type=problem, **named(LABELS))
    family, loaded = load_here(folder, "onnx")
    expected = reference(folder)

    together = run(family, loaded, "classify", TEXTS)
    turned = run(family, loaded, "classify", TEXTS[::-1])
    alone = np.concatenate([run(family, loaded, "classify", [text]) for text in TEXTS])

    assert (family.tasks, family.labels, family.dimensions) == (("classify",), tuple(LABELS), 4)
    np.testing.assert_allclose(together, expected, atol=1e-5)
    np.testing.assert_allclose(turned, expected[::-1], atol=1e-5)
    np.testing.assert_allclose(alone, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["distilbert", "modernbert", "qwen3", "roberta"])
def test_every_architecture(kind: str, tmp_path: Path) -> None:
    folder = save_scorer(kind, tmp_path, **named(LABELS))

    np.testing.assert_allclose(run(*load_here(folder), "classify", TEXTS), reference(folder), atol=1e-5)


def test_labels_beyond_the_ninth_keep_their_order(tmp_path: Path) -> None:
    folder = save_scorer("distilbert", tmp_path, **named([f"l{place}" for place in range(12)]))
    family, engine = load_here(folder)

    assert family.labels == tuple(f"l{place}" for place in range(12))
    np.testing.assert_allclose(run(family, engine, "classify", TEXTS), reference(folder), atol=1e-5)


def test_without_a_word_of_labels_there_are_two(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path, labels=2)
    assert "id2label" not in json.loads((folder / "config.json").read_text())

    family, engine = load_here(folder)

    assert family.labels == ("LABEL_0", "LABEL_1")
    np.testing.assert_allclose(run(family, engine, "classify", TEXTS), reference(folder), atol=1e-5)


def test_one_label_has_a_score_of_its_own(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path, **named(["spam"]))
    family, engine = load_here(folder, family="classifier")

    assert family.labels == ("spam",)
    np.testing.assert_allclose(run(family, engine, "classify", TEXTS), reference(folder), atol=1e-5)


def test_raw_scores(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path, **named(LABELS))
    expected = reference(folder, function_to_apply="none")

    np.testing.assert_allclose(run(*load_here(folder), "classify", TEXTS, raw_scores=True), expected, atol=1e-5)


def test_pairs_as_of_entailment(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path, **named(LABELS))
    pairs = [["a cat sits", "a kitten sleeps"], ["a", "the quick brown fox " * 40]]
    expected = reference(folder, [{"text": text, "text_pair": other} for text, other in pairs])

    np.testing.assert_allclose(run(*load_here(folder), "classify", pairs), expected, atol=1e-5)


def test_auto_finds_both_engines_alike(tmp_path: Path) -> None:
    found = prepare_here(save_scorer("bert", tmp_path, **named(LABELS)), "auto")
    assert re.search(r"onnx differs from torch by \S+ and runs at", found.reason)


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    family, _ = load_here(save_scorer("bert", tmp_path, **named(LABELS)))

    with pytest.raises(InvalidInput, match="cannot rerank, only classify"):
        family.head("rerank", {})
    with pytest.raises(InvalidInput, match="a text, or a pair") as caught:
        family.prepare(family.head("classify", {}), ["a", 1], {})
    assert caught.value.item == 1
