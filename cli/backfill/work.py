"""The rows of a backfill through the client, and what comes of them to the writer."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from infinity_pool.broker.errors import InfinityError, InvalidInput, ModelNotFound, Unprocessable
from infinity_pool.broker.mapping import Document, Mapped
from infinity_pool.cli.backfill.local import Served
from infinity_pool.cli.backfill.progress import Show, shown
from infinity_pool.cli.backfill.rows import Row
from infinity_pool.cli.backfill.segment import Segment
from infinity_pool.cli.backfill.settings import BackfillSettings
from infinity_pool.cli.backfill.source import File, Source
from infinity_pool.cli.backfill.state import State, failures_of, remove_failures, save

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
        self._failures = failures_of(out, state.failures) if state.failures else None
        if not state.failures:
            remove_failures(out)

    async def run(self, served: Served) -> None:
        """Run all that is left; when cancelled, commit what there is."""
        await self._check_model(served)
        with shown() as show:
            await self._run(served, show)

    async def _run(self, served: Served, show: Show) -> None:
        results = served.client.map(
            served.model,
            documents(self._source),
            task=name_of(self._task),
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
        """
        Refuse a model that is not served, or whose vectors are others than before; learn a classifier's labels.

        A server with one model may answer for any name, and would fill the output with the vectors of that one.
        """
        models = {model.name: model for model in await served.client.models()}
        if served.model not in models:
            names = ", ".join(models) or "none"
            raise ModelNotFound(f"no model {served.model!r} is served there; there is: {names}", param="model")
        workers, task = models[served.model].workers, name_of(self._task)
        tasks = {each for worker in workers for each in worker.tasks}
        if tasks and task not in tasks:
            raise InvalidInput(f"{served.model} cannot {task}, only {', '.join(sorted(tasks))}", param="model")
        fingerprint = next((worker.fingerprint for worker in workers if worker.fingerprint), "")
        if self._state.fingerprint and fingerprint and fingerprint != self._state.fingerprint:
            raise InvalidInput(f"{served.model} is another model than before; --restart begins anew", param="model")
        self._state.fingerprint = self._state.fingerprint or fingerprint
        if task == "classify":
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
            self._failures = failures_of(self._out, 0)
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


def name_of(task: ModuleType) -> str:
    """Give the task's name, which is its module's."""
    return task.__name__.rpartition(".")[2]


def options_of(task: ModuleType, settings: BackfillSettings) -> dict[str, Any]:
    """Give what the model is told with each job."""
    given = {name: getattr(settings, name) for name in (*task.OPTIONS, "truncate_prompt_tokens")}
    if settings.truncation_side != "right":
        given["truncation_side"] = settings.truncation_side
    return {name: _WORDS.get(value, value) for name, value in given.items() if value not in _NOT_GIVEN}
