"""One run of a backfill, from what is asked for to its exit code."""

import asyncio
import contextlib
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click
from upath import UPath

from infinity_pool.broker.errors import InfinityError, InvalidInput
from infinity_pool.cli.backfill.formats import FORMATS
from infinity_pool.cli.backfill.local import served
from infinity_pool.cli.backfill.settings import BackfillSettings
from infinity_pool.cli.backfill.source import File, find, shown
from infinity_pool.cli.backfill.state import State, alone, beside, check_apart, load, remove_failures, save
from infinity_pool.cli.backfill.work import Work, name_of, options_of
from infinity_pool.cli.process import EXIT_INTERRUPTED
from infinity_pool.cli.stop import Stop, first_end
from infinity_pool.workers.supervision.supervise import Refused

EXIT_FAILURES = 3
"""The exit code of a backfill that is done, with documents that failed."""


async def backfill(task: ModuleType, settings: BackfillSettings, inputs: tuple[str, ...]) -> int:
    """Put files through a model; give the exit code."""
    out, kind = place_of(settings.out)
    files = await asyncio.to_thread(find, inputs, settings.format)
    check_apart([file.name for file in files], out)
    asked = asked_for(task, settings, files, kind)
    stop = Stop()
    try:
        with alone(out):
            if settings.restart:
                remove(out, kind)
                check_removed(out)
            state = load(out, asked)
            save(out, state)  # before anything is written, which belongs to nobody without it
            writer = module_of(kind).Writer(out, state.output, settings.shard_rows)
            with contextlib.closing(writer):
                if not state.finished:
                    await _run(Work(task, settings, files, state, writer, out), settings, stop)
    except OSError as error:  # as where the disk is full, also while the writer is closed
        raise InfinityError(f"it broke off: {error}; the same command goes on") from error
    return told(state, out, stop.asked.is_set())


async def _run(work: Work, settings: BackfillSettings, stop: Stop) -> None:
    """Work, beside what must go on meanwhile, until it is done or told to stop."""
    try:
        async with served(settings, stop) as found:  # whose bars, of loading, are gone when it is there
            running = asyncio.create_task(work.run(found))
            try:
                await first_end(stop.asked.wait(), _awaited(running), *found.keeping)
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                running.result()
    except Refused as refused:
        raise InfinityError(f"{refused} cannot run") from refused


async def _awaited(task: "asyncio.Task[None]") -> None:
    """Wait for a task that is not cancelled with who waits for it."""
    await asyncio.wait([task])


def told(state: State, out: Path, stopped: bool) -> int:
    """Say how it ended; give the exit code."""
    failed = f", {state.failed:,} failed: {beside(out, 'failures.jsonl')}" if state.failed else ""
    if state.finished:
        click.echo(f"{state.done:,} documents in {out}{failed}", err=True)
        return EXIT_FAILURES if state.failed else 0
    click.echo(f"stopped after {state.rows:,} documents{failed}; the same command goes on from there", err=True)
    return EXIT_INTERRUPTED if stopped else 1


def place_of(out: str) -> tuple[Path, str]:
    """
    Give the output's path, and the format that its name asks for; raises InvalidInput if that is not written.

    A URL's is of another class, with the methods of a Path that are used here.
    """
    remote = "://" in out and not out.startswith("file://")
    path = cast(Path, UPath(out.rstrip("/"))) if remote else Path(out.removeprefix("file://")).expanduser()
    for kind in FORMATS:
        if hasattr(module_of(kind), "Writer") and path.suffix.lower() in module_of(kind).SUFFIXES:
            if remote and kind != "parquet":
                raise InvalidInput(f"only Parquet is written to URLs, whose files cannot grow, not {out}", param="out")
            return path, kind
    raise InvalidInput(f"--out ends in .parquet, .npy or .jsonl, not as {out}", param="out")


def module_of(format: str) -> Any:
    """Import cli/backfill/formats/<format>.py."""
    return importlib.import_module(f"infinity_pool.cli.backfill.formats.{format}")


def remove(out: Path, format: str) -> None:
    """Remove what an earlier run has left, and nothing else."""
    for file in (beside(out, "state.json"), *module_of(format).files(out)):
        if not file.is_dir():
            file.unlink(missing_ok=True)
    remove_failures(out)
    with contextlib.suppress(OSError):  # it is no folder, not there, or holds what is not ours
        out.rmdir()


def check_removed(out: Path) -> None:
    """Refuse an output of which something is left that is not ours to remove; raises InvalidInput."""
    if out.exists():
        raise InvalidInput(f"{out} is there, and not all of it of a backfill: remove it, or name another", param="out")


def asked_for(task: ModuleType, settings: BackfillSettings, files: list[File], format: str) -> dict[str, Any]:
    """Give the input and all options that the output depends on."""
    top_n = getattr(settings, "top_n", 0)
    return {
        "inputs": [{"name": shown(file.name), "bytes": file.size, "format": file.format} for file in files],
        "task": name_of(task),
        "model": settings.model,
        "revision": settings.revision,
        "options": options_of(task, settings),
        "fields": task.fields(settings),
        "id_field": settings.id_field,
        "unique_ids": settings.unique_ids,
        "out": format,
        "shard_rows": settings.shard_rows,
        **({"top_n": top_n} if top_n else {}),  # else as runs had it that were begun before there was this
    }
