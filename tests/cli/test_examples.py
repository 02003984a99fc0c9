"""The examples, run as their readers run them."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from .conftest import Serving

EXAMPLES = Path(__file__).parents[2] / "examples"


def enqueue(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(EXAMPLES / "enqueue.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_text_file_is_embedded_through_the_queue(dummy: Serving, tmp_path: Path) -> None:
    lines = ["x" * length for length in range(1, 2501)]
    source, target = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("\n".join(lines))

    done = enqueue(source, target, "--model", "dummy", "--redis-url", dummy.queue_url())

    assert done.returncode == 0, done.stderr
    vectors = np.load(target)
    assert vectors.dtype == np.float32
    assert vectors[:, 0].tolist() == [len(line) for line in lines]


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").touch()
    done = enqueue(tmp_path / "texts.txt", tmp_path / "vectors.npy")
    assert done.returncode == 1
    assert "is empty" in done.stderr


def test_a_queue_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a")
    done = enqueue(tmp_path / "texts.txt", tmp_path / "v.npy", "--redis-url", f"unix://{tmp_path}/none.sock")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the queue cannot be reached now"


def test_a_model_that_nobody_serves_is_told(dummy: Serving, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a")
    done = enqueue(tmp_path / "texts.txt", tmp_path / "v.npy", "--model", "absent", "--redis-url", dummy.queue_url())
    assert done.returncode == 1
    assert done.stderr.strip() == "error: no model 'absent' is served here; there is: dummy"
