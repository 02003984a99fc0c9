"""The wheel: everything is in it, and nothing else is."""

import subprocess
import zipfile
from pathlib import Path

from infinity_pool import __version__

from .conftest import ROOT

PARTS = ("broker", "workers", "api", "cli")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_each_file_of_each_part_under_one_name(wheel: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PARTS]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {f"infinity_pool/{name}" for name in files.split() if (ROOT / name).exists()}
    expected |= {"infinity_pool/__init__.py", "infinity_pool/py.typed"}
    assert len(expected) > 30
    assert {name for name in names(wheel) if ".dist-info/" not in name} == expected


def test_it_has_its_version_and_licence(wheel: Path) -> None:
    assert wheel.name == f"infinity_pool-{__version__}-py3-none-any.whl"
    assert any(name.endswith("licenses/LICENSE") for name in names(wheel))
