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

from infinity_pool.broker.errors import InfinityError, InvalidInput, WorkerFailed
from infinity_pool.workers.faults import OutOfMemory

_LOCK_PATIENCE = 900.0  # seconds; afterwards the work is done twice, which is slow but right
_ABANDONED = 24 * 3600.0  # seconds after which a folder that was never finished will not be
LOCK = "lock"
"""The file in a folder at which processes wait for the one that fills it."""

_RUNTIMES = ("", "-gpu", "-migraphx", "-openvino", "-rocm")
_MAKERS = (
    *("infinity-pool", "transformers", "tokenizers", "torch", "ctranslate2"),
    *(f"onnxruntime{build}" for build in _RUNTIMES),
)


class Damaged(WorkerFailed):
    """What was kept cannot be used as it is; it is to be made again."""


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


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give the name under which to write a file that is seen whole or not at all."""
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    target.parent.mkdir(parents=True, exist_ok=True)
    yield scratch
    scratch.replace(target)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that is seen whole or not at all."""
    with whole_file(path) as scratch:
        scratch.write_text(json.dumps(value, indent=1))


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object that was kept, None if it is not there; raises Damaged if it is something else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Damaged(f"{path} is damaged: it holds no JSON object")
    return value


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise Damaged, naming `path`, for whatever a library says of a damaged file; errors of the disk stay."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    except (InfinityError, OSError, MemoryError):
        raise
    except Exception as error:
        raise Damaged(f"{path} is damaged: {type(error).__name__}: {error}") from error


def is_surroundings(error: Exception) -> bool:
    """Whether the machine, and not the model, is at fault: a full disk, a folder closed to us, no memory."""
    return isinstance(error, MemoryError | OutOfMemory) or (isinstance(error, OSError) and error.errno is not None)


@contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Raise InvalidInput, naming `folder`, if the machine keeps us from filling it."""
    try:
        yield
    except Exception as error:
        if not is_surroundings(error):
            raise
        reason = str(error) or type(error).__name__
        raise InvalidInput(f"nothing can be kept in {folder}: {reason}", param="cache_dir") from error


def keep_newest(folder: Path, most: int) -> None:
    """Remove the oldest files of a folder until the others have at most so many bytes together."""
    files = [(path.stat(), path) for path in folder.iterdir() if path.is_file()]
    kept = 0
    for stat, path in sorted(files, key=lambda one: -one[0].st_mtime):
        kept += stat.st_size
        if kept > most:
            path.unlink(missing_ok=True)


def throw_away(folder: Path, since: float) -> None:
    """Remove what was kept in `folder` before `since`, in seconds of the epoch; the lock stays for who waits at it."""
    for path in folder.iterdir():
        if path.name == LOCK or path.lstat().st_ctime >= since:  # another process has made it again
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


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
