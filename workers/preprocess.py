"""The preprocessing pool: processes in which items become arrays, away from the event loop and the device."""

import asyncio
import logging
import multiprocessing
import os
import signal
import traceback
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, NamedTuple

from infinity_pool.broker.errors import InfinityError, InvalidInput, WorkerFailed
from infinity_pool.broker.messages import Item, Lane
from infinity_pool.workers.interface import Family, Head, ModelFiles, Rows
from infinity_pool.workers.lifeline import follow
from infinity_pool.workers.models.loading import make_family
from infinity_pool.workers.turns import Turns

_FEW_ITEMS = 32
_FEW_CHARS = 4096

_TRUNCATE = "truncate"  # an option that every family has: false refuses items that would be cut

logger = logging.getLogger(__name__)

_family: Family  # this process's own, made once by _begin


class Request(NamedTuple):
    """What is prepared of one job."""

    task: str
    items: list[Item]
    options: dict[str, Any]


class Prepared(NamedTuple):
    """Several jobs' items in one set of rows: `jobs` are their places in what was asked for, in the rows' order."""

    head: Head
    rows: Rows
    jobs: list[int]


Outcome = tuple[list[Prepared], dict[int, InfinityError]]


class Preprocessor:
    """
    Prepares the items of a whole take in one call; one bad job fails alone.

    A few short texts are prepared right `here`, for less than the way to a process and back costs.
    """

    def __init__(self, family: str, files: ModelFiles, processes: int, here: Family) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads take cores; the processes inherit this
        self._here = here
        self._family = family
        self._files = files
        self._processes = processes
        self._executor = self._open(processes)
        self._turns = Turns(max(1, processes))
        self._apart: Executor | None = None
        self._suspects = 0
        self._one_suspect = asyncio.Lock()

    async def start(self) -> None:
        """Start the processes now, so that the first job need not wait for them."""
        await asyncio.gather(*(self._submit([], "online") for _ in range(max(1, self._processes))))

    async def prepare(self, requests: list[Request], lane: Lane = "online") -> Outcome:
        """
        Prepare the items of several jobs; gives their rows, and the error of each that failed.

        Media are prepared job by job, since one may take a second: what is of the online lane comes in between.
        A process that dies takes the others with it, and all are replaced. The jobs they held are tried again one by
        one, in a process where nothing else is; one that kills this too fails as WorkerFailed, and no other.
        """
        if is_small(requests):
            return prepare(self._here, requests)
        if len(requests) > 1 and any(isinstance(request.items[0], bytes) for request in requests):
            return _merge(await asyncio.gather(*(self.prepare([request], lane) for request in requests)))
        try:
            return await self._submit(requests, lane)
        except BrokenExecutor:
            return _merge([await self._alone(request) for request in requests])

    def close(self) -> None:
        """Stop the processes."""
        for executor in (self._executor, self._apart):
            if executor is not None:
                executor.shutdown(wait=True, cancel_futures=True)

    async def _alone(self, request: Request) -> Outcome:
        """Prepare a job that a process may have died of; what it does now is its own doing."""
        self._suspects += 1
        try:
            async with self._one_suspect:
                return await self._in_quarantine(request)
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._close_quarantine()

    async def _in_quarantine(self, request: Request) -> Outcome:
        self._apart = self._apart or self._open(1)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._apart, _prepare, [request])
        except BrokenExecutor:
            self._close_quarantine()
            logger.error("a preprocessing process died of a job that was alone with it; the job fails")
            return [], {0: WorkerFailed("the preprocessing process died on this job")}

    def _close_quarantine(self) -> None:
        if self._apart is not None:
            self._apart.shutdown(wait=False, cancel_futures=True)
            self._apart = None

    async def _submit(self, requests: list[Request], lane: Lane) -> Outcome:
        async with self._turns.one(lane):
            executor = self._executor
            try:
                return await asyncio.get_running_loop().run_in_executor(executor, _prepare, requests)
            except BrokenExecutor:
                if self._executor is executor:  # others that broke with it find the new one
                    logger.error("a preprocessing process died; it is replaced")
                    executor.shutdown(wait=False)
                    self._executor = self._open(self._processes)
                raise

    def _open(self, processes: int) -> Executor:
        if processes == 0:
            return ThreadPoolExecutor(1, "preprocess", initializer=_make, initargs=(self._family, self._files))
        return ProcessPoolExecutor(
            processes,
            multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self._family, self._files),
        )


def _merge(outcomes: list[Outcome]) -> Outcome:
    """Put the outcomes of jobs prepared one by one together, under their places in the list."""
    prepared = [Prepared(one.head, one.rows, [place]) for place, (done, _) in enumerate(outcomes) for one in done]
    errors = {place: error for place, (_, failed) in enumerate(outcomes) for error in failed.values()}
    return prepared, errors


def _begin(family: str, files: ModelFiles) -> None:
    """Begin a process: it ends with its parent, and leaves Ctrl-C to it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    follow(parent.sentinel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _make(family, files)


def _make(family: str, files: ModelFiles) -> None:
    global _family
    _family = make_family(family, files)


def is_small(requests: list[Request]) -> bool:
    """Whether these are so few and short texts that tokenizing them takes some tens of microseconds."""
    items = [item for request in requests[:_FEW_ITEMS] for item in request.items[:_FEW_ITEMS]]
    few = 0 < len(items) == sum(len(request.items) for request in requests) <= _FEW_ITEMS
    return few and sum(map(_chars, items)) <= _FEW_CHARS


def _chars(item: Item) -> int:
    """Count the characters of a text or of a pair; anything else is not small."""
    if isinstance(item, str):
        return len(item)
    return sum(map(_chars, item)) if isinstance(item, list) else _FEW_CHARS + 1


def _prepare(requests: list[Request]) -> Outcome:
    return prepare(_family, requests)


def prepare(family: Family, requests: list[Request]) -> Outcome:
    """Prepare jobs in as few calls as their options allow."""
    errors: dict[int, InfinityError] = {}
    groups: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(f"{request.task} {request.options}" if request.options else request.task, []).append(place)
    prepared = [one for places in groups.values() for one in _prepare_group(family, requests, places, errors)]
    return prepared, errors


def _prepare_group(
    family: Family, requests: list[Request], places: list[int], errors: dict[int, InfinityError]
) -> list[Prepared]:
    first = requests[places[0]]
    try:
        options = {name: value for name, value in first.options.items() if name != _TRUNCATE}
        head = family.head(first.task, options)
        items = [item for place in places for item in requests[place].items]
        rows = family.prepare(head, items, options)
        _check_length(rows, first.options, family.max_length)
        return [Prepared(head, rows, places)]
    except BaseException as error:  # whatever an item does to a tokenizer, a panic in Rust too, is that item's error
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        if len(places) > 1:
            return [one for place in places for one in _prepare_group(family, requests, [place], errors)]
        errors[places[0]] = _as_ours(error)
        return []


def _check_length(rows: Rows, options: dict[str, Any], most: int) -> None:
    """Refuse items that were cut, where the request says that none may be."""
    truncate, asked = options.get(_TRUNCATE, True), options.get("truncate_prompt_tokens", -1)
    limit = f"the model's {most}" if asked in (None, -1) else f"the {asked}"
    if not isinstance(truncate, bool):
        raise InvalidInput(f"truncate must be true or false, not {truncate!r}", param=_TRUNCATE)
    if not truncate and rows.truncated.any():
        raise InvalidInput(f"is over {limit} tokens", item=int(rows.truncated.argmax()))


def _as_ours(error: BaseException) -> InfinityError:
    if isinstance(error, InfinityError):
        return error
    logger.error("preparing a job failed:\n%s", "".join(traceback.format_exception(error)))
    return WorkerFailed(f"the job could not be prepared: {type(error).__name__}")
