"""Keeps child processes alive: starts them again when they end, waiting longer each time, and stops them in the end."""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.signs import Signs

EXIT_REFUSED = 78
"""The exit code of a child that would fail the same way if it were started again (EX_CONFIG of sysexits.h)."""

EXIT_ABSENT = 69
"""The exit code of a child that could not have what it runs, as from a hub that is away (EX_UNAVAILABLE)."""

_TRIES = 5  # starts of a child that never had it
_EXIT_NOT_STARTED = 71  # EX_OSERR
_FIRST_DELAY = 0.5  # s; the first restart is at once, the second after this, then twice as long each time
_LONGEST_DELAY = 30.0  # s
_FOLLOWING = 1.0  # s in which all that a child has started should end after it
_STEADY = 60.0  # s; a child that lived so long starts with a clean record

_log = logging.getLogger(__name__)


async def _nothing(_: str) -> None:
    """Do nothing when a child is gone."""


@dataclass(frozen=True)
class Child:
    """
    A process to keep alive.

    `environment` comes on top of ours and, for each start anew, `INFINITY_WORKER_ID`: an id that no earlier start
    had. `gone` is awaited with that id when the process has ended, before it is started again. A child that gives
    signs of life is killed when it has given none for `silence` seconds.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    gone: Callable[[str], Awaitable[None]] = _nothing
    silence: float | None = None


class Refused(Exception):
    """A child said on stderr why it cannot run, and another start would end the same way, or several did."""


class Supervisor:
    """
    Keeps children alive from `async with` on until its end, when it asks them to stop and waits `patience` seconds.

    With `once`, a child that ends is not started again. `stderr` is the descriptor that children write to (default:
    ours). They are in sessions of their own, so that a Ctrl-C at the terminal reaches the supervisor alone.
    """

    def __init__(
        self,
        children: Sequence[Child],
        lifeline: Lifeline,
        *,
        patience: float,
        once: bool = False,
        stderr: int | None = None,
    ) -> None:
        self._children = children
        self._lifeline = lifeline
        self._patience = patience
        self._once = once
        self._stderr = stderr
        self._stopping = asyncio.Event()
        self.worker_ids = {child.name: "" for child in children}
        """The id of each child's latest start, by the child's name; empty before the first."""
        self._running: dict[str, Process] = {}
        self._to_clear: dict[Process, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep(child), name=child.name) for child in self._children]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait(self) -> None:
        """Wait until all children have ended for good; raises Refused as soon as one says that it cannot run."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Ask all children to end, and kill those that have not after `patience` seconds."""
        self._stopping.set()
        for process in self._running.values():
            if process.returncode is None:
                process.terminate()
        _, late = await asyncio.wait(self._tasks, timeout=self._patience)
        if late:
            _log.warning("killed after %g s: %s", self._patience, ", ".join(sorted(task.get_name() for task in late)))
            self.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._to_clear):
            self._clear_now(process)

    def kill(self) -> None:
        """End all children at once, and start none again."""
        self._stopping.set()
        for process in self._running.values():
            _kill_session(process)

    def end(self, worker_id: str) -> None:
        """Kill one start of a child, with all that it started; the next follows."""
        if process := self._running.get(worker_id):
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    @property
    def stopping(self) -> bool:
        """Whether children have been asked to end."""
        return self._stopping.is_set()

    async def _keep(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        failures, absent = 0, 0
        for start in itertools.count(1):
            born = clock()
            code = await self._run(child, start)
            absent += code == EXIT_ABSENT
            if code == EXIT_REFUSED or (self._once and code) or start == absent == _TRIES:
                raise Refused(child.name)
            if self._once or self._stopping.is_set():
                return
            failures = 0 if clock() - born > _STEADY else failures
            delay = restart_delay(failures)
            failures += 1
            when = f"in {delay:g} s" if delay else "at once"
            _log.warning("%s ended (%s); it is started again %s", child.name, describe(code), when)
            if await self._stops_within(delay):
                return

    async def _run(self, child: Child, start: int) -> int:
        """Run a child once, to its end, and give its exit code."""
        worker_id = f"{socket.gethostname()}-{os.getpid()}-{child.name}-{start}"
        self.worker_ids[child.name] = worker_id
        with contextlib.closing(Signs()) as signs:
            try:
                process = await self._start(child, worker_id, signs)
            except OSError as error:
                _log.error("%s cannot be started: %s", child.name, error)
                return _EXIT_NOT_STARTED
            watching = asyncio.create_task(self._watch(child, worker_id, signs), name=f"signs of {child.name}")
            try:
                return await self._see_through(child, worker_id, process)
            finally:
                watching.cancel()

    async def _see_through(self, child: Child, worker_id: str, process: Process) -> int:
        """Wait for the end of a child, and clean up after it."""
        self._running[worker_id] = process
        if self._stopping.is_set():  # asked for while the process was being made
            process.terminate()
        try:
            return await process.wait()
        finally:
            del self._running[worker_id]
            self._clear(process)
            await child.gone(worker_id)

    def _clear(self, process: Process) -> None:
        """
        Kill what has not followed a child, as a grandchild that was stopped; soon, or now if we are stopping.

        multiprocessing's resource tracker outlives a child that was killed for a moment, to remove its semaphores.
        """
        if self._stopping.is_set():
            _kill_session(process)
        else:
            self._to_clear[process] = asyncio.get_running_loop().call_later(_FOLLOWING, self._clear_now, process)

    def _clear_now(self, process: Process) -> None:
        self._to_clear.pop(process).cancel()
        _kill_session(process)

    async def _watch(self, child: Child, worker_id: str, signs: Signs) -> None:
        """Kill a child whose process lives and gives no more signs of it."""
        if child.silence is not None:
            await signs.until_silent(child.silence)
            _log.error("%s is silent, though its process lives: it is killed", child.name)
            self.end(worker_id)

    async def _start(self, child: Child, worker_id: str, signs: Signs) -> Process:
        ours = {**self._lifeline.environment, **signs.environment, "INFINITY_WORKER_ID": worker_id}
        return await asyncio.create_subprocess_exec(
            *child.command,
            env={**os.environ, **child.environment, **ours},
            stdin=DEVNULL,
            stderr=self._stderr,
            pass_fds=[self._lifeline.descriptor, signs.descriptor],
            start_new_session=True,
        )

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _kill_session(process: Process) -> None:
    """Kill a child and what it started, which are a group of their own; if all have ended there is nothing to do."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def restart_delay(failures: int) -> float:
    """Give the seconds to wait before a start, after so many that failed in a row before this one."""
    return 0.0 if failures == 0 else min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(failures - 1, 16))


def describe(code: int) -> str:
    """Say how a process ended."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
