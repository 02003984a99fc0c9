"""Networks of two towers in ONNX Runtime: a graph each."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.engines.onnx import OnnxEngine
from infinity_pool.workers.files.content import graphs_for
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models.export import export_model
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_towers import png, save_clip, save_siglip
from tests.workers.conftest import ignore_progress, load_here, prepare_here, run

TEXTS = ["a photo of a cat", "fox", "the quick brown fox sits on a red mat", "a photo of a cat that sits " * 9, ""]
IMAGES = [png(32, 32), png(90, 40), png(33, 200, seed=1)]
TOWERS = ("text_model.onnx", "vision_model.onnx")


def vectors(family: Family, engine: Engine) -> Array:
    """Give the vectors of some texts and images, in one batch and alone."""
    jobs: list[tuple[str, list[Any]]]
    jobs = [("text", TEXTS), ("text", TEXTS[1:2]), ("image", IMAGES), ("image", IMAGES[:1])]
    return np.concatenate([run(family, engine, "embed", items, modality=modality) for modality, items in jobs])


def graphs(engine: Engine) -> list[Path]:
    assert isinstance(engine, OnnxEngine)
    return [graph.path for graph in engine.graphs]


@pytest.mark.parametrize("save", [save_clip, save_siglip])
def test_equals_torch(save: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = save(tmp_path)

    given, wanted = (vectors(*load_here(folder, engine)) for engine in ("onnx", "torch"))

    np.testing.assert_allclose(given, wanted, atol=1e-5)


@pytest.mark.usefixtures("made_here")
def test_a_folder_of_graphs_alone_is_served_by_its_own_and_int8_is_made_of_them(tmp_path: Path) -> None:
    source = save_clip(tmp_path / "source")
    wanted = vectors(*load_here(source))
    settings = ModelSettings(model=str(source), cache_dir=str(tmp_path / "cache"))

    made = export_model(settings, tmp_path / "out", "O2", "", ignore_progress)
    family, engine = load_here(tmp_path / "out", "onnx")
    small = load_here(tmp_path / "out", "onnx", dtype="int8")

    assert made.cosine > 1 - 1e-6
    assert graphs(engine) == [tmp_path / "out" / "onnx" / name for name in TOWERS]
    np.testing.assert_allclose(vectors(family, engine), wanted, atol=1e-5)
    assert small[1].dtype == "int8"
    assert 0.98 < (vectors(*small) * wanted).sum(1).min() < 1 - 1e-6


def test_a_graph_that_does_not_project_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_clip(tmp_path)
    made = prepare_here(folder, "onnx").files.built / "onnx"
    shutil.copy(made / TOWERS[1], folder)
    model = onnx.load(made / TOWERS[0])
    model.graph.output[0].name = model.graph.node[-1].output[0] = "pooler_output"
    onnx.save(model, folder / TOWERS[0])

    _, engine = load_here(folder, "onnx")

    assert "its own text_model.onnx gives no text_embeds; exporting another" in caplog.text
    assert graphs(engine)[1] == folder / TOWERS[1]


def test_one_of_several_graphs_cannot_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="of several graphs, text_model and vision_model, and one is named"):
        load_here(save_clip(tmp_path), "onnx", onnx_file="text_model.onnx")


def test_the_graphs_that_are_looked_at() -> None:
    names = [f"onnx/{graph}{end}.onnx" for graph in ("model", "text_model", "vision_model") for end in ("", "_int8")]

    assert graphs_for(names) == ["onnx/text_model.onnx", "onnx/vision_model.onnx"]
    assert graphs_for(names, quantised=True) == names[2:]
    assert graphs_for(names[:4]) == ["onnx/model.onnx"]
