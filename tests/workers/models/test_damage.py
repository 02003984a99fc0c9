"""What a start makes of files that are damaged, the cache's and the model's own, and of a disk without room."""

import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import ignore_progress, making_here

DAMAGES = {"random": bytes(range(255, 0, -1)) * 9, "empty": b"", "list": b"[1]", "object": b"{}"}


def load(model: Path, cache: Path, engine: str = "auto") -> LoadedModel:
    return load_model(ModelSettings(model=str(model), engine=engine, cache_dir=str(cache)), "cpu", ignore_progress)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a cache that holds what `auto` and both engines need of it."""
    folder = tmp_path_factory.mktemp("built")
    model = save_modules(save_network("bert", folder / "tiny"), pooling("mean"), ("Normalize", {}))
    with making_here():
        for engine in ("auto", "onnx"):
            load(model, folder / "cache", engine)
    return model, folder / "cache"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path / "tiny"), pooling("mean"), ("Normalize", {}))


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize(
    ("place", "engine", "damage"),
    [
        ("onnx/facts.json", "onnx", "random"),
        ("onnx/facts.json", "onnx", "object"),
        ("onnx/model.onnx", "onnx", "random"),
        ("onnx/model.onnx", "onnx", "list"),
        ("auto-*.json", "auto", "list"),
        ("auto-*.json", "auto", "object"),
        ("family/facts.json", "onnx", "empty"),
        ("family/facts.json", "onnx", "list"),
        ("family/tokenizer_facts.json", "onnx", "list"),
        ("family/tokenizer.json", "onnx", "random"),
    ],
)
def test_what_is_damaged_is_made_again(
    built: tuple[Path, Path], place: str, engine: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, cache = built[0], shutil.copytree(built[1], tmp_path / "cache")
    (damaged,) = (cache / "models").glob(f"*/{place}")
    damaged.write_bytes(DAMAGES[damage])

    load(model, cache, engine)

    assert f"{damaged.parent if damaged.parent.name == 'family' else damaged}" in caplog.text
    assert "making it again" in caplog.text
    caplog.clear()
    load(model, cache, engine)
    assert "damaged" not in caplog.text


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("damage", ["random", "empty", "list"])
def test_hashes_that_cannot_be_read_are_made_again(
    built: tuple[Path, Path], damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = shutil.copytree(built[1], tmp_path / "cache")
    (cache / "hashes.json").write_bytes(DAMAGES[damage])

    load(built[0], cache, "onnx")

    assert "hashes.json is damaged" in caplog.text
    assert json.loads((cache / "hashes.json").read_text())
    assert "making it again" not in caplog.text


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """No file of this process or its children grows over `size` bytes: a write then ends as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_is_told_and_not_remembered(tiny: Path, tmp_path: Path) -> None:
    wrong = pytest.raises(InvalidInput, match=r"nothing can be kept in .*cache.*File too large")
    with small_files(50_000), wrong as caught:
        load(tiny, tmp_path / "cache")

    assert caught.value.param == "cache_dir"
    kept = {path.name for path in (tmp_path / "cache" / "models").glob("*/*")}
    assert kept == {"lock", "family", "torch"}  # it came as far as the export
    assert load(tiny, tmp_path / "cache", "onnx").engine_name == "onnx"


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_weights_that_are_cut_off_are_named(tiny: Path, tmp_path: Path, engine: str) -> None:
    os.truncate(tiny / "model.safetensors", 1000)

    with pytest.raises(InvalidInput, match=f"model '{tiny}' cannot be loaded from {tiny}: .*header"):
        load(tiny, tmp_path / "cache", engine)


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("text", ["[]", "[1]", '"mean"'])
def test_a_pooling_that_is_no_object_is_named(tiny: Path, tmp_path: Path, text: str) -> None:
    (tiny / "1_Pooling" / "config.json").write_text(text)

    with pytest.raises(InvalidInput, match=r"1_Pooling/config\.json is not a JSON object"):
        load(tiny, tmp_path / "cache", "torch")


@pytest.mark.usefixtures("made_here")
def test_settings_that_are_no_object_are_named(tiny: Path, tmp_path: Path) -> None:
    (tiny / "sentence_bert_config.json").write_text("null")
    load(tiny, tmp_path / "cache", "torch")
    (tiny / "sentence_bert_config.json").write_text("[1]")

    with pytest.raises(InvalidInput, match=r"sentence_bert_config\.json is not a JSON object"):
        load(tiny, tmp_path / "cache", "torch")
