"""The scores are those of sentence-transformers' CrossEncoder."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import ARCHITECTURES, save_scorer
from tests.workers.conftest import ignore_progress, load_here, prepare_here, run

QUERY = "What is the capital of France?"
PAIRS = [
    [QUERY, "Paris is the capital of France."],
    [QUERY, ""],
    [QUERY, "the quick brown fox jumps over the lazy dog " * 40],
    ["a cat sits", "数千年 \0 ﬁne\u0301 👩‍👩‍👧"],
    ["", "a kitten sleeps on a rug"],
    [QUERY, "Stock markets fell sharply (by 3.4%)"],
]


def reference(folder: Path, pairs: list[list[str]] = PAIRS, **options: Any) -> Array:
    return np.asarray(CrossEncoder(str(folder), device="cpu").predict(pairs, show_progress_bar=False, **options))


def configure(folder: Path, **settings: Any) -> Path:
    """Add to a model's config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folder


@pytest.mark.parametrize(
    ("kind", "engine"),
    [*((kind, "torch") for kind in ARCHITECTURES), *((kind, "onnx") for kind in ("bert", "modernbert", "qwen3"))],
)
def test_every_architecture_in_any_mixture(kind: str, engine: str, tmp_path: Path) -> None:
    folder = save_scorer(kind, tmp_path)
    family, loaded = load_here(folder, engine)
    expected = reference(folder)

    together = run(family, loaded, "rerank", PAIRS)
    turned = run(family, loaded, "rerank", PAIRS[::-1])
    alone = np.concatenate([run(family, loaded, "rerank", [pair]) for pair in PAIRS])

    assert family.tasks == ("rerank",)
    assert together.shape == (len(PAIRS),)
    assert np.ptp(expected) > 0.02
    np.testing.assert_allclose(together, expected, atol=1e-5)
    np.testing.assert_allclose(turned, expected[::-1], atol=1e-5)
    np.testing.assert_allclose(alone, expected, atol=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_scorer("bert", tmp_path / "model")


def test_raw_scores(folder: Path) -> None:
    from torch import nn

    expected = reference(folder, activation_fn=nn.Identity())

    np.testing.assert_allclose(run(*load_here(folder), "rerank", PAIRS, raw_scores=True), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["linear.Identity", "activation.Sigmoid", "activation.Tanh"])
@pytest.mark.parametrize("place", ["sentence_transformers", "sbert_ce_default_activation_function"])
def test_the_activation_that_the_config_names(name: str, place: str, folder: Path) -> None:
    path = f"torch.nn.modules.{name}"
    configure(folder, **{place: {"activation_fn": path} if place == "sentence_transformers" else path})

    np.testing.assert_allclose(run(*load_here(folder), "rerank", PAIRS), reference(folder), atol=1e-5)


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("activation", [None, "Tanh", "Softmax"])
def test_as_saved_today(labels: int, activation: str | None, tmp_path: Path) -> None:
    from torch import nn

    chosen: Any = {None: None, "Tanh": nn.Tanh(), "Softmax": nn.Softmax(dim=-1)}[activation]
    if labels == 1 and activation == "Softmax":
        chosen = nn.ReLU()
    model = CrossEncoder(str(save_scorer("roberta", tmp_path / "own", labels)), device="cpu", activation_fn=chosen)
    expected = model.predict(PAIRS, show_progress_bar=False)
    model.save_pretrained(str(tmp_path / "saved"))

    family, engine = load_here(tmp_path / "saved")

    assert family.tasks == (("rerank",) if labels == 1 else ("classify",))
    assert family.labels == (() if labels == 1 else ("LABEL_0", "LABEL_1", "LABEL_2"))
    np.testing.assert_allclose(run(family, engine, family.tasks[0], PAIRS), expected, atol=1e-5)


def test_the_models_own_limit(folder: Path) -> None:
    CrossEncoder(str(folder), device="cpu", max_length=24).save_pretrained(str(folder / "saved"))
    family, engine = load_here(folder / "saved")

    assert family.max_length == 24
    np.testing.assert_allclose(run(family, engine, "rerank", PAIRS), reference(folder / "saved"), atol=1e-5)
    assert load_here(folder / "saved", max_length=50)[0].max_length == 50


def test_tokens_that_are_run(folder: Path) -> None:
    family, _ = load_here(folder)
    rows = family.prepare(family.head("rerank", {}), PAIRS[:3], {})
    tokenizer = CrossEncoder(str(folder), device="cpu").tokenizer

    expected = [len(tokenizer([pair], truncation=True, max_length=128)["input_ids"][0]) for pair in PAIRS[:3]]
    assert rows.lengths.tolist() == expected
    assert rows.truncated.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("labels", "settings", "family"),
    [
        (1, {}, "cross_encoder"),
        (2, {}, "classifier"),
        (3, {}, "classifier"),
        (3, {"sentence_transformers": {"version": "5.0.0"}}, "cross_encoder"),
        (2, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "cross_encoder"),
    ],
)
def test_which_are_cross_encoders(labels: int, settings: dict[str, Any], family: str, tmp_path: Path) -> None:
    configure(save_scorer("distilbert", tmp_path, labels), **settings)

    assert detect(locate(ModelSettings(model=str(tmp_path)), ignore_progress)) == family


@pytest.mark.parametrize(
    ("task", "options", "param", "told"),
    [
        ("embed", {}, "task", "cannot embed, only rerank"),
        ("classify", {}, "task", "cannot classify, only rerank"),
        ("rerank", {"raw_scores": 1}, "raw_scores", "true or false"),
        ("rerank", {"top_n": 1}, "top_n", "no option 'top_n'"),
    ],
)
def test_what_cannot_be_asked(task: str, options: dict[str, Any], param: str, told: str, folder: Path) -> None:
    family, _ = load_here(folder)

    with pytest.raises(InvalidInput, match=told) as caught:
        family.head(task, options)
    assert caught.value.param == param


def test_a_single_text_is_no_pair(folder: Path) -> None:
    family, _ = load_here(folder)

    with pytest.raises(InvalidInput, match="the query and the document") as caught:
        family.prepare(family.head("rerank", {}), [PAIRS[0], "alone"], {})
    assert caught.value.item == 1


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.GLU"}, "'GLU' is not"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "a default prompt"),
        (
            "modules.json",
            [{"type": "a.Transformer", "path": ""}, {"type": "b.Dense", "path": "1_Dense"}],
            "module 'b.Dense'",
        ),
    ],
)
def test_what_is_not_served(file: str, content: Any, told: str, folder: Path) -> None:
    saved = {"model_type": "CrossEncoder"} | content if isinstance(content, dict) else content
    (folder / file).write_text(json.dumps(saved))
    if file == "modules.json":
        (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')

    with pytest.raises(InvalidInput, match=told):
        load_here(folder)


def test_auto_finds_both_engines_alike(folder: Path) -> None:
    assert re.search(r"onnx differs from torch by \S+ and runs at", prepare_here(folder, "auto").reason)
