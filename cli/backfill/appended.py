"""Files that survive a kill at any moment: those that grow, and those that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def is_local(path: object) -> bool:
    """Whether a path is of this machine, and not of a URL."""
    return isinstance(path, Path)


class Appended:
    """A file that grows, cut back at its start to the `size` that is known to be good."""

    def __init__(self, path: Path, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(size)
        self._file.seek(size)

    def write(self, data: bytes) -> None:
        """Write behind all else."""
        self._file.write(data)

    def write_at_start(self, data: bytes) -> None:
        """Write over the beginning."""
        self._file.seek(0)
        self._file.write(data)
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> int:
        """Wait until all is on the disk; give the size."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Parts:
    """What an Appended is, where files cannot grow: a folder of files, one for each commit, each named by its start."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self._data = b""
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.jsonl"):
            if int(file.stem) >= size:
                file.unlink()

    def write(self, data: bytes) -> None:
        """Write behind all else."""
        self._data += data

    def sync(self) -> int:
        """Write what came since the last; give the size of all."""
        if self._data:
            (self._folder / f"{self._size:015d}.jsonl").write_bytes(self._data)
            self._size, self._data = self._size + len(self._data), b""
        return self._size

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def put_in_place(path: Path) -> Iterator[BinaryIO]:
    """
    Write a file under another name, and give it its own when it is whole and on the disk.

    Stores of objects show one when it is whole anyway.
    """
    if not is_local(path):
        with path.open("wb") as file:
            yield file
        return
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            scratch.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
