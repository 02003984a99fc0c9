import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.prepared import prepared
from tests.tiny_models import WIDTH, pooling, save_modules, save_network


def calibrate(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infinity_pool.cli.main", "calibrate", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ranges_are_written_and_named(tmp_path: Path) -> None:
    folder = save_modules(save_network("bert", tmp_path / "model"), pooling("mean"))
    texts = tmp_path / "texts.txt"
    texts.write_text("hello world\na cat sits on the mat\n")

    prepared(folder)
    options = ["--model", str(folder), "--engine", "onnx", "--device", "cpu", "--cache-dir", str(tmp_path / "cache")]

    ended = calibrate(*options, "--texts", str(texts))

    assert ended.returncode == 0, ended.stderr
    path, _, said = ended.stdout.strip().partition(": ")
    assert said == f"ranges of {WIDTH} dimensions, of 2 texts"
    assert np.load(path).shape == (2, WIDTH)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    ended = calibrate("--model", "x", "--texts", str(tmp_path / "none"))

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {tmp_path / 'none'} cannot be read")
