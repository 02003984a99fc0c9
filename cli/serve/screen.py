"""Where `infinity serve` shows how loading goes: bars on a terminal; elsewhere the workers' own log lines must do."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from infinity_pool.broker.presence import WorkerInfo

_CHUNK = 2**16

States = Mapping[str, WorkerInfo | None]
"""What each worker says of itself, by the child's name; None before its first word."""


class Screen(NamedTuple):
    """Where to show loading; `stderr` is the descriptor that children write to, None for ours."""

    show: Callable[[States], None]
    done: Callable[[], None]
    stderr: int | None = None


@asynccontextmanager
async def screen() -> AsyncIterator[Screen]:
    """Give the screen that suits our stderr."""
    if not sys.stderr.isatty():
        yield Screen(lambda states: None, lambda: None)
        return
    async with _relayed_stderr() as stderr:
        with _progress() as progress:
            yield Screen(Bars(progress).show, progress.stop, stderr)


class Bars:
    """A row for each worker, with a bar where the stage says how far it is."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows: dict[str, TaskID] = {}

    def show(self, states: States) -> None:
        """Bring the rows up to date."""
        for name, info in states.items():
            if name not in self._rows:
                self._rows[name] = self._progress.add_task(name, total=None)
            part = 1.0 if info and info.state == "ready" else info and info.progress
            self._progress.update(
                self._rows[name],
                description=f"{name}: {stage_of(info)}",
                total=None if part is None else 1.0,
                completed=part or 0.0,
            )


def stage_of(info: WorkerInfo | None) -> str:
    """Say in a word or two what a worker is doing."""
    if info is None:
        return "starting"
    return info.stage or "loading" if info.state == "loading" else info.state


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@asynccontextmanager
async def _relayed_stderr() -> AsyncIterator[int]:
    """Give a descriptor whose lines appear on our stderr, above the bars instead of through them."""
    source, sink = os.pipe()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(source, "rb"))
    relay = asyncio.create_task(_relay(reader), name="stderr of the children")
    try:
        yield sink
    finally:
        os.close(sink)
        await asyncio.wait([relay], timeout=1.0)  # the last words; a grandchild may still hold the pipe
        relay.cancel()
        transport.close()


async def _relay(reader: asyncio.StreamReader) -> None:
    tail = b""
    while chunk := await reader.read(_CHUNK):
        *lines, tail = (tail + chunk).split(b"\n")
        for line in lines:
            print(line.decode(errors="replace"), file=sys.stderr)  # noqa: T201 - stderr as it is now
