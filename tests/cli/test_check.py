import subprocess
import sys
from pathlib import Path

from tests.prepared import prepared
from tests.tiny_models import pooling, save_modules, save_network


def check(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infinity_pool.cli.main", "check", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def row(output: str, *cells: str) -> str:
    (found,) = (line for line in output.splitlines() if line.split()[: len(cells)] == [*cells])
    return found


def test_says_what_a_model_is_and_what_runs_it(tmp_path: Path) -> None:
    folder = save_modules(save_network("bert", tmp_path / "tiny"), pooling("mean"))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    prepared(folder, engine="torch")

    ended = check("--model", str(folder), "--dtype", "float16", "--cache-dir", str(tmp_path / "cache"))

    assert ended.returncode == 0, ended.stderr
    facts = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines()[:6])
    assert (facts["family"].strip(), facts["tasks"].strip()) == ("sentence_transformer", "embed")
    assert facts["licence"].strip() == "apache-2.0"
    assert " yes " in row(ended.stdout, "torch", "cpu", "float16")
    assert " no " in row(ended.stdout, "onnx", "cpu", "float16")
    assert "onnx cpu float16: the onnx engine runs float32 here, not float16" in " ".join(ended.stdout.split())


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    ended = check("--model", str(tmp_path / "none"))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "does not exist" in ended.stderr
