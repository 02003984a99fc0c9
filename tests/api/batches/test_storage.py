"""Files at paths and at URLs, alike."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from infinity_pool.api.batches.storage import Line, Storage, local_folder
from infinity_pool.broker.errors import InvalidInput, Unavailable


@pytest.fixture(params=["path", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"path": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{uuid.uuid4()}"}[request.param]


async def pieces(*some: bytes) -> AsyncGenerator[bytes, None]:
    for piece in some:
        yield piece


async def lines(storage: Storage, offset: int = 0, longest: int = 100) -> list[Line]:
    async with aclosing(storage.lines("files/a", offset, longest)) as found:
        return [line async for line in found]


async def test_what_is_written_is_read(root: str) -> None:
    storage = Storage(root)
    await storage.check()
    assert await storage.write("files/a", pieces(b"one\ntw", b"o\n\n", b"end")) == 12
    await storage.put("parts/x/b", b"more")
    assert await storage.join(["files/a", "parts/x/b"], "files/c") == 16
    assert b"".join([block async for block in storage.blocks("files/c", 4)]) == b"two\n\nendmore"
    assert await lines(storage) == [Line(b"one", 4), Line(b"two", 8), Line(b"", 9), Line(b"end", 12)]
    assert await lines(storage, 8) == [Line(b"", 9), Line(b"end", 12)]
    await storage.remove("parts/x")
    assert not await storage.exists("parts/x/b")
    await storage.remove("parts/x")
    with pytest.raises(FileNotFoundError):
        await lines(Storage(f"{root}/elsewhere"))


async def test_lines_over_several_blocks(root: str) -> None:
    storage, long = Storage(root), b"x" * (3 * 2**20)
    await storage.write("files/a", pieces(b"a\n", long, b"\n", b"b"))
    assert [len(line.data) for line in await lines(storage, longest=2**22)] == [1, len(long), 1]
    with pytest.raises(InvalidInput, match="is over 1000000 bytes"):
        await lines(storage, longest=1_000_000)


async def test_nothing_is_left_of_what_broke_off(root: str) -> None:
    async def breaking() -> AsyncGenerator[bytes, None]:
        yield b"a"
        raise ConnectionError

    storage = Storage(root)
    with pytest.raises(ConnectionError):
        await storage.write("files/a", breaking())
    assert not await storage.exists("files/a")


async def test_what_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--files nonsense://a cannot be used"):
        Storage("nonsense://a")
    (tmp_path / "taken").touch()
    taken = Storage(str(tmp_path / "taken"))
    with pytest.raises(InvalidInput, match="cannot be written"):
        await taken.check()
    with pytest.raises(Unavailable, match="files cannot be kept or read now: Not a directory"):
        await taken.write("files/a", pieces(b"a"))


def test_the_folder_of_a_root() -> None:
    assert local_folder("/a/b") == Path("/a/b")
    assert local_folder("file:///a/b") == Path("/a/b")
    assert local_folder("s3://bucket/a") is None
