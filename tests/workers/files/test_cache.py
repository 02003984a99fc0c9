import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infinity_pool.workers.files.cache import alone, keep_newest, key_of, whole_folder
from infinity_pool.workers.files.content import content_hash, definition, file_names

HOLD = """
import sys
import time
from pathlib import Path
from infinity_pool.workers.files.cache import alone
with alone(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_equal_values_have_equal_keys() -> None:
    assert key_of({"a": 1, "b": [Path("x"), None]}) == key_of({"b": [Path("x"), None], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert key_of("a", "b") != key_of("ab")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made"

    with pytest.raises(ZeroDivisionError), whole_folder(target) as scratch:
        (scratch / "half").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with whole_folder(target) as scratch:
        (scratch / "file").write_text("first")
        assert not target.exists()
    with whole_folder(target) as scratch:
        (scratch / "file").write_text("second")

    assert (target / "file").read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_process_left_is_cleared_away_a_day_later(tmp_path: Path) -> None:
    for name, age in (("old", 25 * 3600), ("new", 3600)):
        (tmp_path / f".made.{name}").mkdir()
        os.utime(tmp_path / f".made.{name}", times=(time.time() - age,) * 2)

    with whole_folder(tmp_path / "made"):
        assert not (tmp_path / ".made.old").exists()
        assert (tmp_path / ".made.new").exists()


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    waited: list[str] = []
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"

    with alone(tmp_path / "lock", lambda: waited.append("waited") or holder.kill()):  # type: ignore[func-returns-value]
        assert waited == ["waited"]

    holder.communicate()
    with alone(tmp_path / "lock", lambda: waited.append("again")):
        assert waited == ["waited"]


def test_the_files_that_make_a_model() -> None:
    names = ["config.json", "model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin", "tokenizer.json"]
    others = ["README.md", "onnx/model.onnx", "onnx/config.json", "tf_model.h5", "rust_model.ot", "training_args.bin"]

    assert definition([*names, *others]) == sorted({*names} - {"pytorch_model.bin"})
    variants = ["model.fp16.safetensors", "checkpoint-500/model.safetensors", "adapter_model.safetensors"]
    assert definition([*names, *variants]) == definition(names)
    assert "pytorch_model-00001-of-00002.bin" in definition(["pytorch_model-00001-of-00002.bin"])
    beside = ["artifact.metadata", "colbert_linear.pt", "sparse_linear.pt"]
    assert definition([*beside, "heads.pt", "other.metadata"]) == beside


def test_the_hash_is_of_names_and_contents(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").write_text("content")
        (folder / ".hidden").write_text(folder.name)

    def hash_of(folder: Path) -> str:
        return content_hash(folder, file_names(folder), memory)

    assert hash_of(first) == hash_of(second)
    (second / "sub" / "file").write_text("CONTENT")
    assert hash_of(first) != hash_of(second)
    (second / "sub" / "file").rename(second / "sub" / "other")
    (first / "sub" / "file").write_text("CONTENT")
    assert hash_of(first) != hash_of(second)


def test_a_known_file_is_not_read_again(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    (tmp_path / "file").write_text("content")
    known = content_hash(tmp_path, ["file"], memory)
    (tmp_path / "file").chmod(0)  # its time and size are as before

    assert content_hash(tmp_path, ["file"], memory) == known
    assert "file" in memory.read_text()


def test_the_oldest_files_go_where_there_are_too_many_bytes(tmp_path: Path) -> None:
    for age, name in enumerate("abc"):
        (tmp_path / name).write_bytes(b"1234")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))

    keep_newest(tmp_path, 9)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
