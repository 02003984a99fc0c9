"""The licence that a model's own files name."""

from pathlib import Path
from typing import Any

_KEYS = ("license:", "license_name:")


def licence_of(path: Path) -> str:
    """Read what the head of the model's card in this folder names; else say where to look."""
    card = path / "README.md"
    named = _in_card(card) if card.is_file() else ""
    if named:
        return named
    return "see its LICENSE file" if any(path.glob("LICENSE*")) else "not named"


def _in_card(card: Path) -> str:
    lines: list[Any] = card.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return ""
    found = {}
    for line in lines[1:]:
        if line.strip() == "---":
            break
        for key in _KEYS:
            if line.startswith(key):
                found[key] = line.removeprefix(key).strip().strip("'\"")
    return found.get("license_name:") or found.get("license:") or ""
