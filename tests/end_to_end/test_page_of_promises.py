"""docs/reliability.md names a test for each promise, and there is one of that name."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_is_there() -> None:
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\b(test_\w+)`", PAGE))
    assert len(named) > 30
    assert not named - defined


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"tests/[\w/]+\.py", PAGE))
    assert len(named) > 8
    assert all((ROOT / name).exists() for name in named)
