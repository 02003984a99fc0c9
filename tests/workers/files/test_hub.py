"""The hub's real client, against a hub on this machine; each look-up in a process of its own, as it reads HF_… once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput, Unavailable
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import ModelFiles, Progress
from infinity_pool.workers.settings import ModelSettings
from infinity_pool.workers.supervision.child import run_in_child
from tests.workers.conftest import ignore_progress
from tests.workers.hub_server import COMMIT, Hub, serve_hub

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub whose one model, org/tiny, needs a token, which our environment has."""
    files = {
        "config.json": json.dumps({"model_type": "bert"}),
        "model.safetensors": "w" * 100_000,
        "pytorch_model.bin": "not needed",
        "2_Dense/pytorch_model.bin": "needed",
        "onnx/model.onnx": "graph",
        "onnx/model_quantized.onnx": "not needed",
        "README.md": "not needed",
    }
    for name, text in files.items():
        (tmp_path / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / name).write_text(text)
    with serve_hub("org/tiny", tmp_path / "repository", token="hf_secret") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub


def find(settings: ModelSettings, progress: Progress = ignore_progress) -> ModelFiles:
    return run_in_child(locate, settings, progress=progress)


def test_a_model_is_downloaded_once_and_found_without_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts: list[tuple[str, float | None]] = []
    settings = ModelSettings(model="org/tiny", cache_dir=str(tmp_path / "cache"))

    files = find(settings, lambda stage, part: parts.append((stage, part)))
    once = sorted(hub.fetched)
    again = find(settings)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    alone = find(settings)

    assert once == ["2_Dense/pytorch_model.bin", "config.json", "model.safetensors"]
    assert sorted(hub.fetched) == once
    assert files == again == alone
    assert files.path.is_relative_to(tmp_path / "cache")
    assert files.config == {"model_type": "bert"}
    assert parts[-1] == ("downloading org/tiny", 1.0)
    assert "the hub cannot be reached" in caplog.text


def test_the_graph_is_downloaded_for_the_engine_that_runs_it(hub: Hub, tmp_path: Path) -> None:
    settings = ModelSettings(model="org/tiny", cache_dir=str(tmp_path / "cache"), engine="onnx", revision=COMMIT)

    files = find(settings)

    assert files.revision == COMMIT
    assert "onnx/model.onnx" in hub.fetched
    assert "onnx/model_quantized.onnx" not in hub.fetched


@pytest.mark.parametrize("more", [{"dtype": "int8"}, {"onnx_file": "onnx/model_quantized.onnx"}])
def test_another_graph_is_downloaded_where_it_is_wanted(more: dict[str, str], hub: Hub, tmp_path: Path) -> None:
    find(ModelSettings(model="org/tiny", cache_dir=str(tmp_path / "cache"), **more))  # type: ignore[arg-type]

    assert {"onnx/model.onnx", "onnx/model_quantized.onnx"} <= set(hub.fetched)


def test_only_the_hub_is_asked_and_only_for_the_model(hub: Hub, tmp_path: Path) -> None:
    find(ModelSettings(model="org/tiny", cache_dir=str(tmp_path / "cache")))

    assert hub.strange == []


@pytest.mark.parametrize(
    ("model", "revision", "words", "param"),
    [
        ("org/other", "", "'org/other' is no folder here and no model on the hub", "model"),
        ("org/tiny", "v9", "'org/tiny' has no revision 'v9'", "revision"),
        ("??", "", "'??' is no folder here and no model on the hub", "model"),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    model: str, revision: str, words: str, param: str, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(ModelSettings(model=model, revision=revision, cache_dir=str(tmp_path / "cache")))

    assert words in caught.value.message
    assert caught.value.param == param


def test_a_wrong_token_is_named(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")

    with pytest.raises(InvalidInput, match="or it is private and HF_TOKEN not of one who may read it"):
        find(ModelSettings(model="org/tiny", cache_dir=str(tmp_path / "cache")))


def test_a_hub_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)

    with pytest.raises(Unavailable, match="'org/other' is not on this machine, and the hub cannot be reached"):
        find(ModelSettings(model="org/other", cache_dir=str(tmp_path / "cache")))
