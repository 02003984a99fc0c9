"""Folders that optimum made in an environment of its own, served by this one: `make test-optimum`."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from infinity_pool.api.clients.sync_client import SyncClient
from tests.cli.conftest import Serving
from tests.workers.conftest import MINILM

PACKAGE, _, INSIDE = MINILM.removeprefix("package:").partition("/")
TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20, ""]


def model_folder() -> Path:
    found = __import__(PACKAGE).__file__
    assert found is not None
    return Path(found).parent / INSIDE


@pytest.mark.parametrize(
    ("options", "dtype", "least"),
    [(["--optimize", "O2"], "float32", 1 - 1e-6), (["--optimize", "O2", "--quantize", "avx2"], "int8", 0.97)],
)
def test_minilm(options: list[str], dtype: str, least: float, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [os.environ["OPTIMUM"], "export", "--model", MINILM, "--out", str(out), *options]
    done = subprocess.run([*command, "--cache-dir", str(tmp_path / "cache")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{dtype}, made by optimum " in done.stdout

    serving = Serving("--model", str(out), "--served-model-name", "made", "--engine", "onnx")
    try:
        with SyncClient(serving.ready().url) as client:
            vectors = client.embed("made", TEXTS)
    finally:
        serving.end()

    wanted = SentenceTransformer(str(model_folder()), device="cpu").encode(TEXTS, normalize_embeddings=True)
    cosines = (vectors * np.asarray(wanted)).sum(1)
    print(f"{dtype}: cosine to sentence-transformers at least {cosines.min():.6f}")  # noqa: T201 - what it is run for
    assert cosines.min() > least
