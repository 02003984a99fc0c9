"""Vectors, sparse vectors and matrices are those of FlagEmbedding's recipe, with a tiny random network of its kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models.detect import detect
from tests.tiny_late_interaction import DIM, save_bge_m3
from tests.tiny_models import WIDTH, transformers
from tests.workers.conftest import load_here, prepare_here, run

TEXTS = [
    "hello world",
    "",
    "What is the capital of France? Paris is the capital of France.",
    "the quick brown fox jumps over the lazy dog " * 40,
    "\N{SNOWMAN}\N{SNOWMAN} a cat",
    "a",
]


@torch.inference_mode()
def reference(folder: Path) -> tuple[Array, list[dict[int, float]], list[Array]]:
    """Do what FlagEmbedding does with one batch of all texts, with transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    sparse, colbert = torch.nn.Linear(WIDTH, 1), torch.nn.Linear(WIDTH, DIM)
    sparse.load_state_dict(torch.load(folder / "sparse_linear.pt"))
    colbert.load_state_dict(torch.load(folder / "colbert_linear.pt"))
    features = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    hidden = network(**features).last_hidden_state
    dense = functional.normalize(hidden[:, 0], dim=-1).numpy()
    weights = torch.relu(sparse(hidden)).squeeze(-1)
    unused = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    lexical: list[dict[int, float]] = []
    for ids, row in zip(features["input_ids"].tolist(), weights.tolist(), strict=True):
        lexical.append({})
        for token, weight in zip(ids, row, strict=True):
            if token not in unused and weight > lexical[-1].get(token, 0):
                lexical[-1][token] = weight
    vectors = functional.normalize(colbert(hidden[:, 1:]), dim=-1).numpy()
    counts = features["attention_mask"].sum(1).tolist()
    return dense, lexical, [rows[: count - 1] for rows, count in zip(vectors, counts, strict=True)]


def assert_lexical(ours: list[list[Array]], theirs: list[dict[int, float]]) -> None:
    for (indices, values), expected in zip(ours, theirs, strict=True):
        assert [array.dtype.name for array in (indices, values)] == ["int32", "float32"]
        assert indices.tolist() == sorted(expected)
        np.testing.assert_allclose(values, [expected[token] for token in indices.tolist()], atol=1e-5)


def assert_matrices(ours: list[Array], theirs: list[Array]) -> None:
    assert [matrix.shape for matrix in ours] == [matrix.shape for matrix in theirs]
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-5)


@pytest.mark.parametrize("engine", ["torch", "onnx", "ctranslate2"])
def test_all_three_in_any_mixture(engine: str, tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path)
    family, loaded = load_here(folder, engine)
    dense, lexical, matrices = reference(folder)
    assert sum(map(len, lexical)) > len(TEXTS)

    for order in (range(len(TEXTS)), reversed(range(len(TEXTS))), *([at] for at in range(len(TEXTS)))):
        places = list(order)
        texts = [TEXTS[at] for at in places]
        np.testing.assert_allclose(run(family, loaded, "embed", texts), dense[places], atol=1e-5)
        assert_lexical(run(family, loaded, "sparse", texts), [lexical[at] for at in places])
        assert_matrices(run(family, loaded, "multivector", texts), [matrices[at] for at in places])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Engine]:
    return load_here(save_bge_m3(tmp_path_factory.mktemp("bge-m3")))


def test_its_sentence_transformers_modules_do_not_hide_it(tmp_path: Path) -> None:
    files = prepare_here(save_bge_m3(tmp_path, with_modules=True)).files

    assert detect(files) == "bge_m3"


def test_the_engine_is_chosen_by_its_vectors(tmp_path: Path) -> None:
    assert "onnx differs from torch by" in prepare_here(save_bge_m3(tmp_path), "auto").reason


def test_tasks_are_not_run_together(loaded: tuple[Family, Engine]) -> None:
    family, _ = loaded

    assert len({family.head(task, {}) for task in family.tasks}) == 3
    assert family.head("embed", {"input_type": "query"}) == family.head("embed", {"input_type": "document"})


def test_dimensions_normalize_and_top_k(loaded: tuple[Family, Engine]) -> None:
    whole = run(*loaded, "embed", TEXTS, normalize=False)
    cut = whole[:, :10] / np.linalg.norm(whole[:, :10], axis=1, keepdims=True)
    matrices = run(*loaded, "multivector", TEXTS)
    narrow = [matrix[:, :7] / np.linalg.norm(matrix[:, :7], axis=1, keepdims=True) for matrix in matrices]
    heaviest = [sorted(values)[-2:] for _, values in run(*loaded, "sparse", TEXTS)]

    np.testing.assert_allclose(run(*loaded, "embed", TEXTS, dimensions=10), cut, atol=1e-5)
    np.testing.assert_array_equal(run(*loaded, "embed", TEXTS, dimensions=10, normalize=False), whole[:, :10])
    assert_matrices(run(*loaded, "multivector", TEXTS, dimensions=7), narrow)
    assert [sorted(values) for _, values in run(*loaded, "sparse", TEXTS, top_k=2)] == heaviest


@pytest.mark.parametrize(
    ("task", "options", "param"),
    [
        ("embed", {"dimensions": WIDTH + 1}, "dimensions"),
        ("embed", {"normalize": 1}, "normalize"),
        ("embed", {"top_k": 1}, "top_k"),
        ("sparse", {"top_k": 0}, "top_k"),
        ("sparse", {"dimensions": 3}, "dimensions"),
        ("multivector", {"dimensions": DIM + 1}, "dimensions"),
        ("multivector", {"input_type": "passage"}, "input_type"),
        ("rerank", {}, "task"),
    ],
)
def test_bad_options_are_named(task: str, options: dict[str, Any], param: str, loaded: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput) as caught:
        loaded[0].head(task, options)

    assert caught.value.param == param


def test_a_layer_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path)
    torch.save({"something": torch.ones(1)}, folder / "sparse_linear.pt")
    with pytest.raises(InvalidInput, match=r"sparse_linear\.pt holds no linear layer"):
        load_here(folder)

    (folder / "sparse_linear.pt").write_bytes(b"version https://git-lfs")
    with pytest.raises(InvalidInput, match=r"sparse_linear\.pt cannot be read"):
        load_here(folder)


def test_a_network_with_one_of_the_layers_is_another(tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path, with_modules=True)
    (folder / "colbert_linear.pt").unlink()

    assert detect(prepare_here(folder).files) == "sentence_transformer"
