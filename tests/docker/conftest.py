"""A wheel of what is checked out, and clean environments to install it in."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = 600.0  # s
MEMORY = Path("/dev/shm")
NEEDED = 8 * 2**30  # bytes, so that as much again is left for the rest of the machine


class Venv:
    """An environment with nothing in it but pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        venv.create(folder, with_pip=True)

    def run(self, *command: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a command of the environment, and give what it printed; it must succeed."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SLOW,
            cwd=self.folder,
            env={**clean(os.environ), "PATH": f"{self.bin}:{os.environ['PATH']}", **(variables or {})},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, program: str) -> str:
        """Run a line of Python."""
        return self.run("python", "-c", program).strip()


def clean(variables: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would lead Python elsewhere, and have pip write no bytecode, which takes as long as the rest."""
    kept = {name: value for name, value in variables.items() if not name.startswith(("PYTHON", "VIRTUAL", "INFINITY_"))}
    return {**kept, "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=SLOW)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture
def new_venv(tmp_path: Path) -> Iterator[Callable[[], Venv]]:
    """Make an environment, which is removed after the test: some take gigabytes, and minutes to remove from a disk."""
    place = tempfile.mkdtemp(dir=MEMORY if has_room(MEMORY) else tmp_path)
    yield lambda: Venv(Path(place))
    shutil.rmtree(place)


def has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free > NEEDED
