"""Folders that are made to be served by ONNX Runtime alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.models.export import export_model
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.networks.with_optimum import why_not
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import embed, ignore_progress, making_here

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    """A model with weights outside its network."""
    folder = tmp_path_factory.mktemp("tiny")
    dense = {"in_features": WIDTH, "out_features": 8, "bias": True, "activation_function": "torch.nn.Tanh"}
    save_modules(save_network("bert", folder), pooling("mean"), ("Dense", dense), ("Normalize", {}))
    weights = {"linear.weight": torch.randn(8, WIDTH), "linear.bias": torch.randn(8)}
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    return ModelSettings(model=str(folder), cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def source(settings: ModelSettings) -> LoadedModel:
    with making_here():
        return load_model(replace(settings, engine="torch"), "cpu", ignore_progress)


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize(
    ("level", "processor", "dtype", "cosine"),
    [
        ("", "", "float32", 1 - 1e-6),
        ("O2", "", "float32", 1 - 1e-6),
        ("O4", "", "float16", 0.999),
        ("O2", "avx512_vnni", "int8", 0.98),
    ],
)
def test_the_folder_needs_no_export_and_gives_the_models_vectors(
    level: str, processor: str, dtype: str, cosine: float, settings: ModelSettings, source: LoadedModel, tmp_path: Path
) -> None:
    stages: list[str] = []

    made = export_model(settings, tmp_path / "out", level, processor, lambda stage, part: stages.append(stage))
    loaded = load_model(replace(settings, model=str(tmp_path / "out")), "cpu", ignore_progress)

    assert stages[-3:] == ["finding the model", "reading the model", "loading with onnx"]
    assert (made.dtype, loaded.engine_name, loaded.engine.dtype) == (dtype, "onnx", dtype)
    assert loaded.fingerprint != source.fingerprint
    assert [path.parent.name for path in (tmp_path / "out").rglob("*.safetensors")] == ["2_Dense"]
    vectors, expected = embed(loaded.family, loaded.engine, TEXTS), embed(source.family, source.engine, TEXTS)
    assert min(made.cosine, (vectors * expected).sum(1).min()) > cosine
    if dtype == "float32":
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_what_is_refused_leaves_nothing(settings: ModelSettings, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = set(tmp_path.iterdir())

    with pytest.raises(InvalidInput, match="full is there already") as caught:
        export_model(settings, tmp_path / "full", "", "", ignore_progress)
    with pytest.raises(InvalidInput, match="O4 is half precision, which cannot be quantised"):
        export_model(settings, tmp_path / "out", "O4", "avx2", ignore_progress)

    assert caught.value.param == "out"
    assert set(tmp_path.iterdir()) == before


def test_why_optimum_is_not_used(source: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path" / "optimum").mkdir(parents=True)
    (tmp_path / "path" / "optimum" / "__init__.py").write_text("raise ImportError('of another time')")

    monkeypatch.syspath_prepend(str(tmp_path / "path"))

    assert why_not(source.family) == "optimum does not import: of another time"
