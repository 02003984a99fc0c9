"""Another pooling than the model's own is sentence-transformers' with that module in its place."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.text.pooling import MODES
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import embed, load_here

TEXTS = ["hello world", "", "What is the capital of France?", "the quick brown fox jumps " * 9]
NORMALIZE: tuple[str, dict[str, Any]] = ("Normalize", {})

Model = tuple[Path, Family, Engine]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_network("bert", tmp_path_factory.mktemp("network"))


def packed(network: Path, folder: Path, *modes: str) -> Path:
    shutil.copytree(network, folder, ignore=shutil.ignore_patterns(".built*"))
    return save_modules(folder, pooling(*modes, include_prompt=False), NORMALIZE, prompts={"query": "the fox: "})


@pytest.fixture(scope="module", params=["mean", "cls+max"])
def model(request: pytest.FixtureRequest, network: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = packed(network, tmp_path_factory.mktemp("models") / request.param, *request.param.split("+"))
    return folder, *load_here(folder)


def reference(folder: Path, **options: Any) -> Array:
    made = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(made.encode(TEXTS, show_progress_bar=False, **options))


@pytest.mark.parametrize("mode", MODES)
def test_every_pooling(mode: str, model: Model, network: Path, tmp_path: Path) -> None:
    folder = packed(network, tmp_path / "reference", mode)

    vectors = embed(*model[1:], TEXTS, pooling=mode, prompt_name="query")

    assert vectors.shape == (len(TEXTS), WIDTH)
    np.testing.assert_allclose(vectors, reference(folder, prompt_name="query"), atol=1e-5)


def test_different_poolings_share_no_batch(model: Model) -> None:
    family = model[1]
    wanted: list[dict[str, Any]] = [{"pooling": mode, "normalize": flag} for mode in MODES for flag in (True, False)]

    assert len({family.head("embed", options) for options in wanted}) == len(wanted)
    own = family.head("embed", {"pooling": "mean"}) == family.head("embed", {})
    assert own == (model[0].name == "mean")


def test_the_width_is_that_of_one_mode(model: Model) -> None:
    with pytest.raises(InvalidInput, match=f"dimensions must be from 1 to {WIDTH}, ") as caught:
        model[1].head("embed", {"pooling": "lasttoken", "dimensions": WIDTH + 1})
    assert caught.value.param == "dimensions"


def test_a_dense_layer_takes_what_it_was_trained_on(network: Path, tmp_path: Path) -> None:
    shutil.copytree(network, tmp_path / "model", ignore=shutil.ignore_patterns(".built*"))
    dense = {"in_features": 2 * WIDTH, "out_features": 8, "activation_function": "torch.nn.modules.linear.Identity"}
    folder = save_modules(tmp_path / "model", pooling("cls", "mean"), ("Dense", dense | {"bias": True}))
    save_file(
        {"linear.weight": torch.randn(8, 2 * WIDTH), "linear.bias": torch.randn(8)},
        folder / "2_Dense" / "model.safetensors",
    )

    with pytest.raises(InvalidInput, match="its own pooling alone") as caught:
        load_here(folder)[0].head("embed", {"pooling": "mean"})
    assert caught.value.param == "pooling"
