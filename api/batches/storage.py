"""The bytes of files, in a folder or below a URL that fsspec knows; all that blocks is done in threads."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from infinity_pool.broker.errors import InvalidInput, Unavailable

T = TypeVar("T")

_BLOCK = 2**20  # bytes read or written at once
_FILES = "files"


class Line(NamedTuple):
    """A line without its end, and where in the file the next one begins."""

    data: bytes
    end: int


class Storage:
    """
    Files by their path below `root`; raises InvalidInput where that is nothing fsspec can use.

    All methods raise Unavailable where the store cannot be written or read now.
    """

    def __init__(self, root: str) -> None:
        import fsspec  # late: without files nobody needs it

        try:
            self._system, path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError, OSError) as error:
            raise InvalidInput(f"--files {root} cannot be used: {error}", param="files") from error
        self._root = str(path).rstrip("/")

    async def check(self) -> None:
        """Raise InvalidInput if nothing can be written."""
        try:
            await self.put(probe := f"{_FILES}/.probe", b"")
            await self.remove(probe)
        except Exception as error:  # a store may raise anything
            raise InvalidInput(f"--files {self._root} cannot be written: {error}", param="files") from error

    async def put(self, path: str, data: bytes) -> None:
        """Write a file, or over it."""
        await _do(self._put, path, data)

    async def write(self, path: str, pieces: AsyncGenerator[bytes, None]) -> int:
        """Write a file of pieces as they come, and give its size; there is none if that fails. Closes the pieces."""
        size = 0
        file = await _do(self._create, path)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await _do(file.write, piece)
                    size += len(piece)
            await _do(file.close)
        except BaseException:
            await _do(self._discard, file, path)
            raise
        return size

    async def join(self, paths: Sequence[str], into: str) -> int:
        """Put files together, one behind another, and give the size of the whole."""
        return await self.write(into, self._joined(paths))

    async def blocks(self, path: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """Give a file from an offset on, in pieces; raises FileNotFoundError."""
        file = await _do(self._open, path, offset)
        try:
            while block := await _do(file.read, _BLOCK):
                yield block
        finally:
            await _do(file.close)

    async def lines(self, path: str, offset: int, longest: int) -> AsyncGenerator[Line, None]:
        """Give a file's lines from an offset on; raises InvalidInput for one over `longest` bytes, at any size."""
        begun: list[bytes] = []  # of a line
        async with aclosing(self.blocks(path, offset)) as blocks:
            async for block in blocks:
                first, *more = block.split(b"\n")
                begun.append(first)
                for following in more:
                    line = b"".join(begun)
                    offset += len(line) + 1
                    yield Line(line, offset)
                    begun = [following]
                if sum(map(len, begun)) > longest:
                    raise InvalidInput(f"is over {longest} bytes")
        if line := b"".join(begun):
            yield Line(line, offset + len(line))

    async def exists(self, path: str) -> bool:
        """Say whether there is a file."""
        return bool(await _do(self._system.exists, self._at(path)))

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""
        with suppress(FileNotFoundError):
            await _do(partial(self._system.rm, self._at(path), recursive=True))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _create(self, path: str) -> Any:
        self._system.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)
        return self._system.open(self._at(path), "wb")

    def _put(self, path: str, data: bytes) -> None:
        with self._create(path) as file:
            file.write(data)

    def _discard(self, file: Any, path: str) -> None:
        with suppress(OSError, ValueError):  # it is broken already
            file.close()
        with suppress(OSError):
            self._system.rm(self._at(path))

    def _open(self, path: str, offset: int) -> Any:
        file = self._system.open(self._at(path), "rb")
        file.seek(offset)
        return file

    async def _joined(self, paths: Sequence[str]) -> AsyncGenerator[bytes, None]:
        for path in paths:
            async with aclosing(self.blocks(path)) as blocks:
                async for block in blocks:
                    yield block


async def _do(call: Callable[..., T], *args: Any) -> T:
    """Do what blocks in a thread; raises FileNotFoundError, and Unavailable for all other trouble of the store."""
    try:
        return await asyncio.to_thread(call, *args)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"files cannot be kept or read now: {error.strerror or error}", retry_after=5.0) from error


def local_folder(root: str) -> Path | None:
    """Give the folder of this machine that files are kept in, None if they are elsewhere."""
    path = root.removeprefix("file://").removeprefix("local://")
    return None if "://" in path or "::" in path else Path(path)


def place_of(file_id: str) -> str:
    """Give the path of a file of an id."""
    return f"{_FILES}/{file_id}"
