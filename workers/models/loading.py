"""A model by its name, found, prepared and loaded, ready for a worker to run."""

import dataclasses
import hashlib
import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from infinity_pool.broker.errors import InvalidInput, WorkerFailed
from infinity_pool.workers.device.devices import share_cores
from infinity_pool.workers.device.memory import require_room, weights
from infinity_pool.workers.device.sizes import parse_size
from infinity_pool.workers.files.cache import (
    LOCK,
    Damaged,
    alone,
    cache_root,
    key_of,
    maker_versions,
    surroundings,
    throw_away,
)
from infinity_pool.workers.files.content import content_hash, definition, file_names, graphs_for, has_weights
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import Engine, Family, ModelFiles, Progress
from infinity_pool.workers.models import build
from infinity_pool.workers.models.choices import ENGINES, FAMILIES, engine_module, make_family
from infinity_pool.workers.models.detect import family_of
from infinity_pool.workers.models.running import run_items
from infinity_pool.workers.settings import ModelSettings
from infinity_pool.workers.supervision.child import run_in_child

__all__ = ["ENGINES", "FAMILIES", "LoadedModel", "load_model", "make_family"]

_log = logging.getLogger(__name__)

_DUMMY = "dummy"
_PLAIN = "float32"  # of embeddings; a model that gives none refuses any other
_MADE_SINCE = 6  # to be raised when what is made of a model changes


@dataclass(frozen=True)
class LoadedModel:
    """
    A model on its device.

    `files` can be pickled and is what preprocessing processes make their family of. Workers whose `fingerprint` is the
    same give the same vectors. `cosine` is the least to its own float32 of some texts' outputs, where it was measured.
    """

    files: ModelFiles
    family_name: str
    family: Family
    engine_name: str
    engine: Engine
    fingerprint: str
    cosine: float | None = None


class _Prepared(NamedTuple):
    """A model with all that was made of it, ready to load; `content` is the hash of its own files."""

    files: ModelFiles
    family_name: str
    engine_name: str
    content: str


def load_model(settings: ModelSettings, device: str, progress: Progress) -> LoadedModel:
    """
    Find, prepare and load a model on one device; what takes long is done once and found again by later starts.

    Raises InvalidInput if the model or a setting cannot be served, and Unavailable if the hub cannot be reached.
    """
    if settings.engine not in ("auto", *ENGINES):
        raise InvalidInput(f"no engine {settings.engine!r}; there are auto, {', '.join(ENGINES)}", param="engine")
    if settings.family not in ("auto", *FAMILIES):
        raise InvalidInput(f"no family {settings.family!r}; there are auto, {', '.join(FAMILIES)}", param="family")
    share_cores()
    if settings.engine == _DUMMY:
        return _load(_dummy(settings), settings, device, progress)
    began = time.time()
    found = _find(settings, progress)
    try:
        return _load(_prepare(found, settings, device, progress), settings, device, progress)
    except Damaged as error:
        folder = found.files.built
        _log.warning("%s; throwing away %s and making it again", error, folder)
        with surroundings(folder), _alone(folder, progress):
            throw_away(folder, began)
    try:
        return _load(_prepare(found, settings, device, progress), settings, device, progress)
    except Damaged as error:
        message = f"what was made of model {settings.model!r} in {folder} cannot be used, though made twice: {error}"
        raise InvalidInput(message, param="model") from error


def _load(prepared: "_Prepared", settings: ModelSettings, device: str, progress: Progress) -> LoadedModel:
    files, family_name, engine_name, content = prepared
    dtype = settings.dtype
    need = weights(files, engine_name, device, dtype)
    require_room(need, parse_size(settings.memory_limit), device, engine_name)
    progress(f"loading with {engine_name}", None)
    family = make_family(family_name, files)
    engine = engine_module(engine_name).load(files, family, device, dtype)
    _try(family, engine, {} if files.embedding_dtype == _PLAIN else {"embedding_dtype": files.embedding_dtype})
    about = {name: fact for name, fact in files.extra.items() if name != engine_name}
    parts = [content, family_name, about, family.max_length, family.dimensions, engine.dtype]
    if engine.dtype == "int8":  # engines agree in what floating-point numbers are, and each quantises in its own way
        parts.append(engine_name)
    if files.ranges.is_file():  # which what is answered as int8 depends on
        parts.append(hashlib.sha256(files.ranges.read_bytes()).hexdigest())
    cosine = engine.cosine or files.extra.get(engine_name, {}).get("cosine")
    return LoadedModel(files, family_name, family, engine_name, engine, key_of(*parts), cosine)


def _dummy(settings: ModelSettings) -> _Prepared:
    files = ModelFiles(Path(), {}, settings.model, max_length=settings.max_length or None)
    files = dataclasses.replace(files, embedding_dtype=settings.embedding_dtype)
    return _Prepared(files, _DUMMY, _DUMMY, "")


class _Located(NamedTuple):
    """A model's files, with the folder for what is made of them; `content` is the hash of its own files."""

    files: ModelFiles
    family_name: str
    content: str


def _find(settings: ModelSettings, progress: Progress) -> _Located:
    progress("finding the model", None)
    files = locate(settings, progress)
    family_name = family_of(files, settings.family)
    root = cache_root(settings.cache_dir)
    names = file_names(files.path)
    with surroundings(root):
        content = content_hash(files.path, definition(names), root / "hashes.json")
        graphs = graphs_for(names, files.onnx_file, files.quantised)
        graph = content_hash(files.path, graphs, root / "hashes.json")
    ways = (family_name, files.trust_remote_code, files.quantised, files.onnx_file)
    ranges = root / "ranges" / f"{key_of(content, family_name)}.npy"
    key = key_of(_MADE_SINCE, content, graph, *ways, maker_versions())
    if files.quantised or files.onnx_file or not has_weights(names):  # the vectors are a graph's own
        content = key_of(content, graph, files.onnx_file)
    return _Located(dataclasses.replace(files, built=root / "models" / key, ranges=ranges), family_name, content)


def _prepare(found: _Located, settings: ModelSettings, device: str, progress: Progress) -> _Prepared:
    engine = "onnx" if settings.onnx_file else settings.engine
    if settings.compile and engine == "auto":
        engine = "torch"
    want = (engine, device, settings.dtype)
    with surroundings(found.files.built):
        made = _make_once(found.files, found.family_name, want, progress)
    if made.reason:
        _log.info("model %r: engine auto is %s: %s", settings.model, made.engine, made.reason)
    return _Prepared(made.files, found.family_name, made.engine, found.content)


def _make_once(files: ModelFiles, family_name: str, want: tuple[str, str, str], progress: Progress) -> build.Found:
    """Find what was made for an engine, device and dtype, or make it in a process of its own, alone on this machine."""
    if made := build.found(files, *want):
        return made
    with _alone(files.built, progress):
        if build.found(files, *want) is None:
            run_in_child(build.build, files, family_name, *want, progress=progress)
        made = build.found(files, *want)
    if made is None:
        raise WorkerFailed(f"what was made of {files.spec!r} is gone from {files.built}")
    return made


def _alone(folder: Path, progress: Progress) -> AbstractContextManager[None]:
    return alone(folder / LOCK, lambda: progress("waiting for a process that prepares this model", None))


def _try(family: Family, engine: Engine, options: dict[str, str]) -> None:
    """Run it once: what cannot work ends the start, not the first request."""
    run_items(family, engine, family.tasks[0], [family.example("a first text")], options)
