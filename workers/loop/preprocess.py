"""The preprocessing pool: processes in which items become arrays, away from the event loop and the device."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor

from infinity_pool.broker.errors import WorkerFailed
from infinity_pool.broker.messages import Lane
from infinity_pool.workers.interface import Family, ModelFiles
from infinity_pool.workers.loop.preparing import Outcome, Request, merge, prepare
from infinity_pool.workers.loop.slices import is_small
from infinity_pool.workers.loop.turns import Turns
from infinity_pool.workers.models.loading import make_family
from infinity_pool.workers.supervision.lifeline import follow
from infinity_pool.workers.text.spelling import Speller

logger = logging.getLogger(__name__)


class _Own(threading.local):
    """What a process, or the thread in place of one, has of its own, made once by `_make`."""

    family: Family
    speller: Speller


_own = _Own()


class Preprocessor:
    """
    Prepares the items of several jobs in one call; one bad job fails alone.

    A few short texts are prepared right `here`, for less than the way to a process and back costs.
    """

    def __init__(self, family: str, files: ModelFiles, processes: int, here: Family) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads take cores; the processes inherit this
        self._here = here
        self._speller = Speller(files, here.max_length)
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

        What waits for a process is let in by its lane, then by age.
        A process that dies takes the others with it, and all are replaced. The jobs they held are tried again one by
        one, in a process where nothing else is; one that kills this too fails as WorkerFailed, and no other.
        """
        if is_small(requests):
            return prepare(self._here, self._speller, requests)
        try:
            return await self._submit(requests, lane)
        except BrokenExecutor:
            return merge([await self._alone(request) for request in requests])

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


def _begin(family: str, files: ModelFiles) -> None:
    """Begin a process: it ends with its parent, and leaves Ctrl-C to it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    follow(parent.sentinel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _make(family, files)


def _make(family: str, files: ModelFiles) -> None:
    _own.family = make_family(family, files)
    _own.speller = Speller(files, _own.family.max_length)


def _prepare(requests: list[Request]) -> Outcome:
    return prepare(_own.family, _own.speller, requests)
