"""The private server's folder: it goes with the server, and where everything was killed, with the next one's start."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infinity_pool.broker.embedded import EmbeddedServer, remove_leftovers

STARTING = (
    "import time; from infinity_pool.broker.embedded import EmbeddedServer; "
    "server = EmbeddedServer.start(); print(server.folder, server.process.pid, flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of our own, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def elsewhere(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """Another process that has a server; it, the folder, and the server's pid."""
    with subprocess.Popen([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        folder, pid = process.stdout.readline().split()
        yield process, Path(folder), int(pid)
        process.kill()


def test_the_folder_goes_with_the_server(temporary: Path) -> None:
    with EmbeddedServer.start() as server:
        assert server.folder.stat().st_mode & 0o777 == 0o700
        assert list(temporary.iterdir()) == [server.folder]
    assert not list(temporary.iterdir())


def test_a_folder_in_use_is_left_alone(elsewhere: tuple[subprocess.Popen[str], Path, int]) -> None:
    _, folder, _ = elsewhere
    with EmbeddedServer.start() as server:
        assert folder.exists()
        (folder / "redis.sock").unlink()  # as before the server has made it, or after its death
        remove_leftovers()
        assert folder.exists()
        assert server.folder.exists()


@pytest.mark.parametrize("server_too", [False, True])
def test_the_folder_of_the_killed_is_removed(
    elsewhere: tuple[subprocess.Popen[str], Path, int], server_too: bool
) -> None:
    process, folder, pid = elsewhere
    server = psutil.Process(pid)
    if server_too:
        server.kill()  # so that its socket stays
    process.kill()
    process.wait()
    psutil.wait_procs([server], 10)
    assert [each.name for each in folder.iterdir()] == (["redis.sock"] if server_too else [])
    EmbeddedServer.start().stop()
    assert not folder.exists()


def test_what_is_not_a_leftover_is_left_alone(temporary: Path) -> None:
    alike, listening, full = (temporary / name for name in ("infinity-x", "infinity-queue-a", "infinity-queue-b"))
    for folder in (alike, listening, full):
        folder.mkdir()
    (full / "notes.txt").touch()
    (temporary / "infinity-queue-link").symlink_to(alike)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(listening / "redis.sock"))
        server.listen()
        remove_leftovers()
        assert {each.name for each in temporary.iterdir()} == {
            "infinity-x",
            "infinity-queue-a",
            "infinity-queue-b",
            "infinity-queue-link",
        }
    remove_leftovers()
    assert not listening.exists()
    assert (full / "notes.txt").exists()
