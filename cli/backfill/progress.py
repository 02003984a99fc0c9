"""How a backfill goes: a bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from infinity_pool.cli.backfill.state import State

Show = Callable[[State, float | None], None]
"""Told how far it is, and which part of the input that is, if its size is known."""

_WINDOW = 30.0  # s, over which speeds are taken
_LINES = 10.0  # s between two lines


@contextmanager
def shown() -> Iterator[Show]:
    """Give what shows progress on stderr."""
    if not sys.stderr.isatty():
        yield Lines().show
        return
    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        speeds, bar = Speeds(), progress.add_task("starting", total=None)

        def show(state: State, part: float | None) -> None:
            speeds.note(state, part)
            progress.update(bar, description=speeds.told(), total=None if part is None else 1.0, completed=part or 0.0)

        yield show


class Lines:
    """A line every few seconds."""

    def __init__(self) -> None:
        self._speeds = Speeds()
        self._told = time.monotonic()

    def show(self, state: State, part: float | None) -> None:
        """Say how far it is, if it is time to."""
        self._speeds.note(state, part)
        if time.monotonic() - self._told >= _LINES:
            self._told = time.monotonic()
            click.echo(self._speeds.told(), err=True)


class Speeds:
    """How far it is, how fast, and how long it will take."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int, float | None]] = deque()
        self._failed = 0

    def note(self, state: State, part: float | None, now: float | None = None) -> None:
        """Take a look."""
        now = time.monotonic() if now is None else now
        self._failed = state.failed
        self._seen.append((now, state.rows, state.tokens, part))
        while now - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()

    def told(self) -> str:
        """Say it in words."""
        (since, before, tokens_before, part_before), (now, rows, tokens, part) = self._seen[0], self._seen[-1]
        seconds = max(now - since, 1e-9)
        words = [f"{rows:,} documents"]
        if part is not None:
            words[0] += f" ({part:.0%})"
        if now > since:
            words += [
                f"{(rows - before) / seconds:,.0f} items/s",
                f"{(tokens - tokens_before) / seconds:,.0f} tokens/s",
            ]
        if part is not None and part_before is not None and part > part_before:
            words.append(f"{_time((1 - part) * seconds / (part - part_before))} left")
        if self._failed:
            words.append(f"{self._failed:,} failed")
        return ", ".join(words)


def _time(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
