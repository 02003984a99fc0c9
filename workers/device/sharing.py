"""
Workers that share a device take turns on it, by weights: start-time fair queuing over the time they hold it.

What they know of each other is in one folder for each device, and dies with them: a turn, and the life of a worker, are
locks on files, which the kernel frees whenever a process ends, however it does. No worker waits for one that does
nothing: a place in line lapses unless it is renewed, and a turn that nobody passes on is waited for only so long.

The method is that of Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import struct
import time
import uuid
from pathlib import Path
from typing import NamedTuple

_LOOK = 0.05  # s between two looks at the line, where nobody rings
_PLACE = 0.3  # s for which a place in line counts that is not renewed
_SOON = 0.01  # s in which a worker with more work has formed its next batch
_RECORD = struct.Struct("<ddd")
_BELL = ".bell"
_TURN = "turn."

_log = logging.getLogger(__name__)


class Unshared:
    """A device of one's own: it is always one's turn."""

    async def take(self) -> None:
        """Wait for nothing."""

    def give_back(self, *, more: bool) -> None:
        """Pass nothing on."""

    def close(self) -> None:
        """Nothing is held."""


class Standing(NamedTuple):
    """
    What others see of a worker: when its latest turn `started` and where its next `begins`, in virtual seconds.

    `until`, on the monotonic clock, it is in line.
    """

    started: float
    begins: float
    until: float


class Sharing(Unshared):
    """
    One worker's part in a device that is shared by all who name the same `folder`; of its turns there are `places`.

    A turn costs its seconds over `weight`, so that of two who always have work, one of weight 3 gets three times the
    device's time. Who is idle saves nothing up. Turns of which none has moved for `patience` seconds are made anew.
    """

    def __init__(self, folder: Path, weight: float, places: int, patience: float) -> None:
        self._folder = folder
        self._weight = weight
        self._places = [folder / f"{_TURN}{number}" for number in range(places)]
        self._patience = patience
        self._held: int | None = None
        self._since = 0.0
        self._now = Standing(0.0, 0.0, 0.0)
        self._others: dict[str, _Other] = {}
        self._rung = asyncio.Event()
        self.name = uuid.uuid4().hex
        os.mkfifo(folder / (self.name + _BELL), 0o600)
        self._bell = os.open(folder / (self.name + _BELL), os.O_RDWR | os.O_NONBLOCK)
        self._file = self._join()
        asyncio.get_running_loop().add_reader(self._bell, self._ring)

    async def take(self) -> None:
        """Wait for one's turn; `give_back` ends it."""
        others = self._look()
        virtual = max((other.started for other in others.values()), default=0.0)
        self._now = self._now._replace(begins=max(self._now.begins, virtual))
        moved, seen = time.monotonic(), others
        while (wait := self._try(others)) is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), wait)
            self._rung.clear()
            others = self._look()
            if _turns(others) != _turns(seen):
                moved, seen = time.monotonic(), others
            elif time.monotonic() - moved > self._patience:
                _log.warning("no turn on the device was passed on for %g s: there are new ones", self._patience)
                self._make_anew()
                moved = time.monotonic()
        self._since = time.monotonic()
        self._say(Standing(self._now.begins, self._now.begins, 0.0))
        if len(self._places) > 1:
            self._ring_others()

    def give_back(self, *, more: bool) -> None:
        """End one's turn; with `more` work in hand one keeps one's place in line for a moment."""
        now = time.monotonic()
        cost = (now - self._since) / self._weight
        self._say(Standing(self._now.started, self._now.started + cost, now + _SOON if more else 0.0))
        if self._held is not None:
            os.close(self._held)
            self._held = None
        self._ring_others()

    def close(self) -> None:
        """Leave the line."""
        asyncio.get_running_loop().remove_reader(self._bell)
        _remove(self._folder / self.name)
        for other in self._others.values():
            other.close()
        for descriptor in (self._file, self._bell, self._held):
            if descriptor is not None:
                os.close(descriptor)

    def _join(self) -> int:
        """Make our file, which is locked before anybody can find it."""
        hidden = self._folder / f".{self.name}"
        file = _open(hidden)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.pwrite(file, _RECORD.pack(*self._now), 0)
        hidden.rename(self._folder / self.name)
        return file

    def _try(self, others: dict[str, Standing]) -> float | None:
        """Take a turn if it is ours; else give the seconds after which to look again."""
        now = time.monotonic()
        self._say(self._now._replace(until=now + _PLACE))
        before = [other.until for name, other in others.items() if other.until > now and self._follows(name, other)]
        if not before and self._lock():
            return None
        return min(_LOOK, max(1e-3, min(before, default=now + _LOOK) - now))

    def _follows(self, name: str, other: Standing) -> bool:
        return (other.begins, name) < (self._now.begins, self.name)

    def _lock(self) -> bool:
        self._held = next((turn for place in self._places if (turn := _locked(place)) is not None), None)
        return self._held is not None

    def _make_anew(self) -> None:
        """Leave the turns to those who hold them and do nothing."""
        for place in self._places:
            place.unlink(missing_ok=True)

    def _say(self, standing: Standing) -> None:
        self._now = standing
        os.pwrite(self._file, _RECORD.pack(*standing), 0)

    def _look(self) -> dict[str, Standing]:
        """Read where the others stand; what the dead have left is removed."""
        there = {path.name for path in self._folder.iterdir() if "." not in path.name} - {self.name}
        for name in self._others.keys() - there:
            self._others.pop(name).close()
        for name in there - self._others.keys():
            with contextlib.suppress(FileNotFoundError):  # it has left meanwhile
                self._others[name] = _Other(self._folder / name)
        for name in [name for name, other in self._others.items() if not other.lives()]:
            self._others.pop(name).close()
            _remove(self._folder / name)
        return {name: other.standing() for name, other in self._others.items()}

    def _ring_others(self) -> None:
        for other in self._others.values():
            other.ring()

    def _ring(self) -> None:
        os.read(self._bell, 4096)
        self._rung.set()


class _Other:
    """Another worker's file, and the bell that wakes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        try:
            self._bell = os.open(path.with_name(path.name + _BELL), os.O_RDWR | os.O_NONBLOCK)
        except BaseException:
            os.close(self._file)
            raise

    def lives(self) -> bool:
        """Whether it still holds its own lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def standing(self) -> Standing:
        return Standing(*_RECORD.unpack(os.pread(self._file, _RECORD.size, 0)))

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full, and so is heard
            os.write(self._bell, b"!")

    def close(self) -> None:
        os.close(self._file)
        os.close(self._bell)


def _turns(others: dict[str, Standing]) -> dict[str, float]:
    return {name: other.started for name, other in others.items()}


def _locked(path: Path) -> int | None:
    """Lock a file, unless another has, or has made it anew meanwhile."""
    descriptor = _open(path)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _remove(path: Path) -> None:
    for each in (path, path.with_name(path.name + _BELL)):
        each.unlink(missing_ok=True)
