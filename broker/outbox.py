"""Puts one model's jobs on its streams: all that are submitted while one write is under way go in the next."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import Backoff, is_outage
from infinity_pool.broker.errors import InfinityError, Overloaded, Unavailable
from infinity_pool.broker.messages import LANES, Job, Lane, Result, encode_job

GIVE_UP = 3.5
"""Seconds for which a write is tried during an outage before its callers are told."""

WORK_WAITING = 60.0
"""Seconds of work, at the speed that the workers measure, that may wait in a lane unless a number is set."""

_PROMISED = 0.7  # of a job's time: as much work as may wait before it, by estimates; the rest is for their errors
_LEAST_TOKENS = 100_000  # whatever a worker says before it has run much
_WRITE_BYTES = 4 * 2**20  # in one write
_LOOK = 0.5  # s between two looks at a write that hangs


class QueueLimits(NamedTuple):
    """
    How much may wait in one lane of a model, queued or held, before more is refused; no tokens: WORK_WAITING.

    `speed` is that of the model's workers together, in tokens a second, 0 while it is not known.
    """

    items: int = 32_000
    tokens: int = 0
    bytes: int = 512 * 2**20
    speed: float = 0.0

    def at(self, speed: float) -> "QueueLimits":
        """Give the limits for a model whose workers run so fast together."""
        return self._replace(speed=speed, tokens=self.tokens or max(_LEAST_TOKENS, int(WORK_WAITING * speed)))

    def tokens_before(self, job: Job) -> int:
        """
        Say how many tokens may wait where a job is queued: fewer if it has little time.

        A queue in which all wait until just before their time is over would do nothing but work that comes too late.
        """
        if job.ttl_ms is None or not self.speed:
            return self.tokens
        return min(self.tokens, int(_PROMISED * self.speed * job.ttl_ms / 1000))


@dataclass(slots=True, eq=False)
class Ticket:
    """A job on its way: `entry` is its place in the stream once it has one."""

    model: str
    job: Job
    future: asyncio.Future[Result]
    first: int = 0  # the place in its request of its first item
    data: bytes = field(init=False)
    entry: bytes | None = None
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.data = encode_job(self.job)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more, though it is not answered."""
        return self.future.cancelled() or (self.future.done() and self.future.exception() is not None)

    def fail(self, error: InfinityError) -> None:
        """Settle with an error, if nothing has settled it yet."""
        if not self.future.done():
            if error.item is not None:
                error.item += self.first
            self.future.set_exception(error)


Group = list[Ticket]  # the jobs of one request: all are queued, or none


class Outbox:
    """
    The writer of one model's jobs: one write at a time, each as large as what came meanwhile.

    `losses` says how often the queue may have lost data; what was being written at such a moment is written again.
    """

    def __init__(
        self, redis: Redis, model: str, limits: Callable[[], QueueLimits], losses: Callable[[], int] = lambda: 0
    ) -> None:
        self._redis = redis
        self._model = model
        self._limits = limits
        self._losses = losses
        self._groups: list[Group] = []
        self._writing: list[Group] = []
        self._dropped: list[Ticket] = []
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._looking: asyncio.TimerHandle

    def add(self, group: Group) -> None:
        """Put one request's jobs in line to be written."""
        self._groups.append(group)
        self._some.set()

    def drop(self, tickets: Sequence[Ticket]) -> None:
        """Take back jobs that nobody waits for any more; those not yet written are simply not written."""
        self._dropped.extend(ticket for ticket in tickets if ticket.entry is not None)
        self._some.set()

    async def flush(self, patience: float) -> None:
        """Wait until all is written, or for `patience` seconds."""
        if self._groups or self._dropped:
            self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        backoff = Backoff()
        while True:
            if not self._some.is_set():
                self._idle.set()
            await self._some.wait()
            self._idle.clear()
            self._looking = asyncio.get_running_loop().call_later(_LOOK, self._look)
            try:
                self._some.clear()
                while self._groups or self._dropped:  # in turns: under load there is always more to write
                    await self._write_groups()
                    await self._write_dropped()
                backoff.reset()
            except Exception as error:
                if not is_outage(error):
                    raise
                backoff.failed(f"write to the queue of {self._model}", error)
                self._give_up(error)
                self._some.set()
                await backoff.pause()
            finally:
                self._looking.cancel()

    async def _write_groups(self) -> None:
        groups, losses = self._next(), self._losses()
        if not groups:
            return
        limits = self._limits()
        args: list[Any] = [limits.items, limits.bytes]
        for group in groups:
            args += (len(group), limits.tokens_before(group[0].job))
            for ticket in group:
                args += (LANES.index(ticket.job.lane) + 1, ticket.job.cost, len(ticket.job.items), ticket.data)
        self._writing = groups
        try:
            answers = await scripts.run(self._redis, "submit", self._keys(), args)
        except BaseException:
            self._groups[:0] = groups  # it may have been written all the same: then its replies are doubles
            raise
        finally:
            self._writing = []
        for group, ids in zip(groups, answers, strict=True):
            self._written(group, ids, limits)
        if self._losses() != losses:
            self._groups += groups

    def _keys(self) -> list[str]:
        return [*(keys.jobs(self._model, lane) for lane in LANES), keys.waiting(self._model)]

    def _next(self) -> list[Group]:
        """Take the groups of the next write, without those whose callers have gone."""
        self._groups = [group for group in self._groups if not all(ticket.future.done() for ticket in group)]
        taken, size = 0, 0
        for group in self._groups:
            size += sum(len(ticket.data) for ticket in group)
            if taken and size > _WRITE_BYTES:
                break
            taken += 1
        groups, self._groups = self._groups[:taken], self._groups[taken:]
        return groups

    def _written(self, group: Group, ids: Any, limits: QueueLimits) -> None:
        if not ids:
            hurried = limits.tokens_before(group[0].job) < limits.tokens
            why = "the request's time is too short beside what waits for" if hurried else "too much waits for"
            for ticket in group:
                ticket.fail(Overloaded(f"{why} {self._model} now"))
            return
        for ticket, entry in zip(group, ids, strict=True):
            ticket.entry = entry
        if gone := [ticket for ticket in group if ticket.abandoned]:
            self.drop(gone)  # their callers left while they were being written

    async def _write_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        try:
            for lane in LANES:
                if mine := [ticket for ticket in dropped if ticket.job.lane == lane]:
                    await self._take_back(lane, mine)
        except BaseException:
            self._dropped[:0] = dropped  # to take a job back twice does no harm
            raise

    async def _take_back(self, lane: Lane, tickets: list[Ticket]) -> None:
        counts = [part for one in tickets for part in (one.entry, len(one.job.items), one.job.cost, len(one.data))]
        names = [keys.jobs(self._model, lane), keys.waiting(self._model), keys.attempts(self._model)]
        await scripts.run(self._redis, "finish", names, [keys.GROUP, lane, *counts])
        await self._redis.publish(keys.cancelled(self._model), ",".join(one.job.id for one in tickets))

    def _give_up(self, error: Exception) -> None:
        """Tell those who have waited long enough; the others are tried again."""
        refused = isinstance(error, OutOfMemoryError)  # it answers, and the answer is no
        self._tell(self._groups, 0.0 if refused else GIVE_UP)

    def _look(self) -> None:
        """Tell them also while a write is under way, for it may hang instead of failing."""
        self._tell([*self._writing, *self._groups], GIVE_UP)
        self._looking = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _tell(self, groups: list[Group], patience: float) -> None:
        before = time.monotonic() - patience
        for group in groups:
            for ticket in group:
                if ticket.since <= before:
                    ticket.fail(Unavailable("the queue cannot be written to now", retry_after=1.0))
