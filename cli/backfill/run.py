"""From rows to outputs, committed as they come."""

import asyncio
import contextlib
import importlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import orjson

from infinity_pool.broker.errors import InfinityError, InvalidInput, Unprocessable
from infinity_pool.broker.mapping import Document, Mapped
from infinity_pool.cli.backfill.appended import Appended
from infinity_pool.cli.backfill.formats import FORMATS
from infinity_pool.cli.backfill.local import Served, served
from infinity_pool.cli.backfill.progress import Show, shown
from infinity_pool.cli.backfill.rows import Row
from infinity_pool.cli.backfill.segment import Segment
from infinity_pool.cli.backfill.settings import BackfillSettings
from infinity_pool.cli.backfill.source import File, Source, find
from infinity_pool.cli.backfill.state import State, alone, beside, load, save
from infinity_pool.cli.process import EXIT_INTERRUPTED
from infinity_pool.cli.stop import Stop, first_end
from infinity_pool.workers.supervise import Refused

EXIT_FAILURES = 3
"""The exit code of a backfill that is done, with documents that failed."""

_SEGMENT = 256  # rows that are written at once
_SHOWN = 0.5  # s between two looks at how it goes
_NOT_GIVEN = ("", "auto", 0, False)
_WORDS = {"yes": True, "no": False}


@dataclass
class Answered:
    """What became of a row: an output for each of its items, or an error."""

    row: Row
    outputs: list[Any]
    error: InfinityError | None
    tokens: int


async def backfill(task: ModuleType, settings: BackfillSettings, inputs: tuple[str, ...]) -> int:
    """Put files through a model; give the exit code."""
    out, kind = place_of(settings.out)
    files = await asyncio.to_thread(find, inputs, settings.format)
    asked = asked_for(task, settings, files, kind)
    with alone(out):
        stop = Stop()
        if settings.restart:
            remove(out, kind)
        state = load(out, asked)
        save(out, state)  # before anything is written, which belongs to nobody without it
        writer = module_of(kind).Writer(out, state.output, settings.shard_rows)
        with contextlib.closing(writer):
            if not state.finished:
                await _run(Work(task, settings, files, state, writer, out), settings, stop)
    return told(state, out, stop.asked.is_set())


async def _run(work: "Work", settings: BackfillSettings, stop: Stop) -> None:
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
    except OSError as error:
        raise InfinityError(f"it broke off: {error}; the same command goes on") from error


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
    """Give the output's path, and the format that its name asks for; raises InvalidInput if that is not written."""
    path = Path(out).expanduser()
    for kind in FORMATS:
        if hasattr(module_of(kind), "Writer") and path.suffix.lower() in module_of(kind).SUFFIXES and "://" not in out:
            return path, kind
    raise InvalidInput(f"--out is a path that ends in .parquet, .npy or .jsonl, not {out}", param="out")


def module_of(format: str) -> Any:
    """Import cli/backfill/formats/<format>.py."""
    return importlib.import_module(f"infinity_pool.cli.backfill.formats.{format}")


def remove(out: Path, format: str) -> None:
    """Remove what an earlier run has left, and nothing else."""
    for file in (beside(out, "state.json"), *module_of(format).files(out), beside(out, "failures.jsonl")):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it is no folder, not there, or holds what is not ours
        out.rmdir()


def options_of(task: ModuleType, settings: BackfillSettings) -> dict[str, Any]:
    """Give what the model is told with each job."""
    given = {name: getattr(settings, name) for name in (*task.OPTIONS, "truncate_prompt_tokens")}
    if settings.truncation_side != "right":
        given["truncation_side"] = settings.truncation_side
    return {name: _WORDS.get(value, value) for name, value in given.items() if value not in _NOT_GIVEN}


def asked_for(task: ModuleType, settings: BackfillSettings, files: list[File], format: str) -> dict[str, Any]:
    """Give the input and all options that the output depends on."""
    return {
        "inputs": [{"name": file.name, "bytes": file.size, "format": file.format} for file in files],
        "task": _name(task),
        "model": settings.model,
        "revision": settings.revision,
        "options": options_of(task, settings),
        "fields": task.fields(settings),
        "id_field": settings.id_field,
        "unique_ids": settings.unique_ids,
        "out": format,
        "shard_rows": settings.shard_rows,
    }


def _name(task: ModuleType) -> str:
    return task.__name__.rpartition(".")[2]


class Work:
    """One run, from the first row that is not committed to the last, or to where it is cancelled."""

    def __init__(
        self, task: ModuleType, settings: BackfillSettings, files: list[File], state: State, writer: Any, out: Path
    ) -> None:
        self._task = task
        self._settings = settings
        self._state = state
        self._writer = writer
        self._out = out
        self._source = Source(
            files,
            task.fields(settings),
            partial(task.items, settings=settings),
            id_field=settings.id_field,
            unique=settings.unique_ids,
            skip=state.rows,
            digest=state.digest,
        )
        self._labels: list[str] = []
        self._answered: list[Answered] = []
        self._writing: asyncio.Future[None] | None = None
        self._committed = self._shown = time.monotonic()
        failures = beside(out, "failures.jsonl")
        self._failures = Appended(failures, state.failures) if state.failures else None
        if not state.failures:
            failures.unlink(missing_ok=True)

    async def run(self, served: Served) -> None:
        """Run all that is left; when cancelled, commit what there is."""
        await self._check_model(served)
        with shown() as show:
            await self._run(served, show)

    async def _run(self, served: Served, show: Show) -> None:
        results = served.client.map(
            served.model,
            documents(self._source),
            task=_name(self._task),
            options=options_of(self._task, self._settings),
            max_in_flight=self._settings.max_in_flight,
        )
        try:
            async with contextlib.aclosing(results):
                async for answered in by_rows(results):
                    self._answered.append(answered)
                    await self._after_each(show)
            await self._commit(finished=True)
        except (asyncio.CancelledError, InfinityError):
            await self._commit()
            raise
        finally:
            if self._failures:
                self._failures.close()

    async def _check_model(self, served: Served) -> None:
        """Refuse to go on with a model whose vectors are others; learn a classifier's labels."""
        workers = [
            worker for model in await served.client.models() if model.name == served.model for worker in model.workers
        ]
        fingerprint = next((worker.fingerprint for worker in workers if worker.fingerprint), "")
        if self._state.fingerprint and fingerprint and fingerprint != self._state.fingerprint:
            raise InvalidInput(f"{served.model} is another model than before; --restart begins anew", param="model")
        self._state.fingerprint = self._state.fingerprint or fingerprint
        if _name(self._task) == "classify":
            self._labels = [*await served.client.labels(served.model)]

    async def _after_each(self, show: Show) -> None:
        now = time.monotonic()
        if now - self._committed >= self._settings.commit_seconds:
            await self._commit()
            self._committed = now
        elif len(self._answered) >= _SEGMENT:
            await self._in_thread(self._write)
        if now - self._shown >= _SHOWN:
            show(self._state, self._source.part(self._state.rows))
            self._shown = now

    async def _commit(self, finished: bool = False) -> None:
        await self._in_thread(partial(self._commit_now, finished))

    async def _in_thread(self, work: Any) -> None:
        """Write in a thread, one thing at a time, to its end even where who asked for it is cancelled."""
        if self._writing:
            await asyncio.wait([self._writing])
            self._writing.result()
        self._writing = asyncio.ensure_future(asyncio.to_thread(work))
        await asyncio.shield(self._writing)

    def _write(self) -> None:
        """Hand what was answered to the writer."""
        answered, self._answered = self._answered, []
        good = [each for each in answered if each.error is None]
        if good:
            columns = self._task.columns([each.outputs for each in good], self._labels, self._settings)
            ids = [each.row.id for each in good]
            self._writer.add(Segment(ids, columns, not self._settings.id_field, self._labels))
        for each in answered:
            if each.error is not None:
                self._fail(each.row, each.error)
        state = self._state
        state.done += len(good)
        state.failed += len(answered) - len(good)
        state.tokens += sum(each.tokens for each in answered)
        if answered:
            state.rows, state.digest = answered[-1].row.index + 1, answered[-1].row.digest.hex()

    def _fail(self, row: Row, error: InfinityError) -> None:
        if self._failures is None:
            self._failures = Appended(beside(self._out, "failures.jsonl"), 0)
        about = {"file": row.file, "line": row.line, "id": row.id, "reason": error.message}
        self._failures.write(orjson.dumps(about, option=orjson.OPT_APPEND_NEWLINE))

    def _commit_now(self, finished: bool) -> None:
        """Have all on the disk, and only then say so."""
        self._write()
        self._state.output = self._writer.finish() if finished else self._writer.commit()
        self._state.failures = self._failures.sync() if self._failures else 0
        self._state.finished = finished
        save(self._out, self._state)


async def documents(source: Source) -> AsyncIterator[Document]:
    """Give each item of each row, and of a row that cannot be run its error."""
    async for row in source:
        for item in row.items or [Unprocessable(row.error)]:
            yield Document(row, item)


async def by_rows(results: AsyncGenerator[Mapped, None]) -> AsyncIterator[Answered]:
    """Put the outputs of each row together."""
    outputs: list[Any] = []
    error, tokens, seen = None, 0, 0
    async for result in results:
        outputs.append(result.output)
        error, tokens, seen = error or _placed(result, seen), tokens + result.tokens, seen + 1
        if seen >= len(result.id.items):
            yield Answered(result.id, outputs, error, tokens)
            outputs, error, tokens, seen = [], None, 0, 0


def _placed(result: Mapped, place: int) -> InfinityError | None:
    """Give an error that says which of a row's items it is about, where there are several."""
    if result.error is None or len(result.id.items) < 2:
        return result.error
    return Unprocessable(f"item {place}: {result.error.message}")
