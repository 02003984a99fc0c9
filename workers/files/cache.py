"""
What is made once from a model's files (a tokenizer, an exported graph, a measurement) and kept for later starts.

Everything kept has a key made of the content it came from and the versions that made it, so nothing is ever stale;
a folder appears whole, by a rename, or not at all.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput

_LOCK_PATIENCE = 900.0  # seconds; afterwards the work is done twice, which is slow but right
_ABANDONED = 24 * 3600.0  # seconds after which a folder that was never finished will not be
_MAKERS = ("infinity-pool", "transformers", "tokenizers", "torch", "onnxruntime", "onnxruntime-gpu")


def cache_root(cache_dir: str) -> Path:
    """
    Make the folder for what is kept: the user's choice, or `infinity-pool` in the user's cache.

    Raises InvalidInput if it cannot be made.
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "infinity-pool"
    root = Path(cache_dir or default).expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"nothing can be kept in {root}: {error.strerror}", param="cache_dir") from error
    return root


def key_of(*parts: Any) -> str:
    """Give a short name for any JSON value; equal values have equal names, on every machine."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def maker_versions() -> dict[str, str]:
    """Give the versions of the libraries that make what is kept; one that is not installed is left out."""
    found = {}
    for name in _MAKERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder to fill, which becomes `target` at the end; if another process was faster, its folder stays."""
    for left in target.parent.glob(f".{target.name}.*"):  # by one that was killed
        if left.stat().st_mtime < time.time() - _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    scratch = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    scratch.mkdir(parents=True)
    try:
        yield scratch
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that is seen whole or not at all."""
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_text(json.dumps(value, indent=1))
    scratch.replace(path)


def read_json(path: Path) -> Any:
    """Read a JSON file; None if it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """
    Hold a lock between processes, so that one of them works and the others find the result.

    The kernel drops it with its holder, however that dies. `waiting` is called once if another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if not _lock(file.fileno()):
            waiting()
            until = time.monotonic() + _LOCK_PATIENCE
            while time.monotonic() < until and not _lock(file.fileno()):
                time.sleep(0.1)  # flock has no wait with a time limit
        yield


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
