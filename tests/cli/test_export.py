import subprocess
import sys
from pathlib import Path

from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings
from tests.prepared import prepared
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import MINILM, embed, ignore_progress, making_here

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20]


def export(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infinity_pool.cli.main", "export", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_quantised(tmp_path: Path) -> None:
    """AVX2's scheme is right on every processor."""
    folder, cache = save_modules(save_network("bert", tmp_path / "tiny"), pooling("mean")), str(tmp_path / "cache")
    prepared(folder, engine="torch")

    ended = export("--model", str(folder), "--out", str(tmp_path / "out"), "--quantize", "avx2", "--cache-dir", cache)

    assert ended.returncode == 0, ended.stderr
    assert {"exporting to ONNX", "quantising (avx2)"} <= set(ended.stderr.splitlines())
    assert ended.stdout.startswith(f"{tmp_path / 'out'}: int8, made by ")
    with making_here():
        models = [
            load_model(ModelSettings(model=str(model), engine=engine, cache_dir=cache), "cpu", ignore_progress)
            for model, engine in ((folder, "torch"), (tmp_path / "out", "auto"))
        ]
    whole, small = (embed(loaded.family, loaded.engine, TEXTS) for loaded in models)
    assert (models[1].engine_name, models[1].engine.dtype) == ("onnx", "int8")
    assert (whole * small).sum(1).min() > 0.98


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    ended = export("--model", MINILM, "--out", str(tmp_path))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is there already" in ended.stderr
