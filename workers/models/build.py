"""
What is made once of a model and found again by later starts: its family's description, an engine's own files, a choice.

It all lies in `files.built`, one folder for each content of the model's files and set of library versions.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from infinity_pool.workers.device.devices import kind_of
from infinity_pool.workers.files.cache import Damaged, read_json, surroundings, whole_folder, write_json
from infinity_pool.workers.interface import ModelFiles, Progress
from infinity_pool.workers.models.choices import ENGINES, engine_module, family_module, make_family
from infinity_pool.workers.models.choose import choose

Facts = dict[str, Any]

_FACTS = "facts.json"


class Found(NamedTuple):
    """The files with all that was made of them, the engine, and why `auto` is that one (else empty)."""

    files: ModelFiles
    engine: str
    reason: str


def found(files: ModelFiles, engine: str, device: str, dtype: str) -> Found | None:
    """Find what was made; None if anything is missing. Raises Damaged if something cannot be read."""
    facts = read_json(files.described / _FACTS)
    if facts is None:
        return None
    choice = {"engine": engine, "reason": ""} if engine != "auto" else _chosen(_choice(files, device, dtype))
    if choice is None:
        return None
    name = choice["engine"]
    converted = read_json(files.built / name / _FACTS)
    if converted is None:
        return None
    return Found(dataclasses.replace(files, extra={**facts, name: converted}), name, choice["reason"])


def build(files: ModelFiles, family_name: str, engine: str, device: str, dtype: str, progress: Progress) -> None:
    """
    Make what is missing; runs in a process of its own, since it imports torch and transformers.

    Raises InvalidInput if the model cannot be served, or there is no room for what is made of it.
    """
    with surroundings(files.built):
        _build(files, family_name, engine, device, dtype, progress)


def _build(files: ModelFiles, family_name: str, engine: str, device: str, dtype: str, progress: Progress) -> None:
    progress("reading the model", None)
    describe = family_module(family_name).describe
    facts = _made(files.described, lambda folder: describe(files, folder))
    described = dataclasses.replace(files, extra=facts)
    family = make_family(family_name, described)

    def converted(name: str) -> ModelFiles:
        convert = engine_module(name).convert
        made = _made(files.built / name, lambda folder: convert(described, family, folder, progress))
        return dataclasses.replace(described, extra={**facts, name: made})

    if engine == "auto":
        choice = choose(converted, family, device, dtype, progress)
        write_json(_choice(files, device, dtype), choice)
        engine = choice["engine"]
    converted(engine)


def _made(folder: Path, make: Callable[[Path], Facts]) -> Facts:
    """Read a folder's facts, or make the folder."""
    facts = read_json(folder / _FACTS)
    if facts is None:
        with whole_folder(folder) as scratch:
            facts = make(scratch)
            write_json(scratch / _FACTS, facts)
    return dict(facts)


def _chosen(path: Path) -> dict[str, str] | None:
    choice = read_json(path)
    if choice is not None and (choice.get("engine") not in ENGINES or not isinstance(choice.get("reason"), str)):
        raise Damaged(f"{path} is damaged: it names no engine")
    return choice


def _choice(files: ModelFiles, device: str, dtype: str) -> Path:
    return files.built / f"auto-{kind_of(device)}-{dtype}.json"
