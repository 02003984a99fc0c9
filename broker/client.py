"""The producer's end of the queue: submit jobs, await their results, without HTTP."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.asking import Asking
from infinity_pool.broker.connection import Backoff, connect, end, is_outage
from infinity_pool.broker.errors import DeadlineExceeded, InfinityError, InvalidInput, Overloaded, Unavailable
from infinity_pool.broker.inbox import Inbox
from infinity_pool.broker.lanes import ONLINE_ITEMS, usual_lane
from infinity_pool.broker.messages import LANES, UNRUN, Item, Job, Lane, Result
from infinity_pool.broker.outbox import Outbox, QueueLimits, Ticket
from infinity_pool.broker.presence import ModelStatus, WorkerInfo
from infinity_pool.broker.splitting import JOB_BYTES, JOB_TOKENS, UNRUN_BYTES, cost_of, join, split
from infinity_pool.broker.turns import Turnstile
from infinity_pool.broker.watch import Watch

_PARTING = 1.0  # s, to take back what nobody waits for any more
_HEARTBEAT = 1.0  # s, of the reply channel; the snapshot of the models is as old at most

logger = logging.getLogger(__name__)


class QueueClient(Asking):
    """
    Submits jobs to models and hands each result to whoever waits for it; an async context manager.

    `timeout` is the time, in seconds, of an online job; a bulk job has none unless one is given. Requests of up to
    `online_max_items` items go online, larger ones bulk, as `usual_lane` has it, unless a lane is named.
    """

    def __init__(
        self,
        redis: "str | Redis",
        *,
        timeout: float = 60.0,
        online_max_items: int = ONLINE_ITEMS,
        limits: QueueLimits | None = None,
    ) -> None:
        self.timeout = timeout
        self.online_max_items = online_max_items
        self._limits = limits or QueueLimits()
        self._owned = isinstance(redis, str)
        self._redis = connect(redis) if isinstance(redis, str) else redis
        self._watch = Watch(self._redis)
        self._inbox = Inbox(self._redis, on_loss=self._queue_again)
        self._outboxes: dict[str, Outbox] = {}
        self._turnstile = Turnstile(self._watch, lambda model, group: self._outbox(model).add(group), self._limits_of)
        self._trouble = Backoff()
        self._tasks: set[asyncio.Task[None]] = set()
        self._prefix = uuid.uuid4().hex[:16]
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        await self._beat()  # until the queue can be reached, submits say that it is unavailable
        self._start(self._inbox.listen, "replies")
        self._start(self._keep, "heartbeat")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(outbox.flush(_PARTING) for outbox in self._outboxes.values()))
        await self._inbox.close()
        tasks = list(self._tasks)
        for task in tasks:
            if not task.get_name().endswith("replies"):  # a blocked read is not cancelled; it ends by itself
                await end(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._owned:
            await self._redis.aclose()

    async def submit(
        self,
        model: str,
        task: str,
        items: Sequence[Item],
        *,
        options: dict[str, Any] | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
        key: str = "",
        weight: float = 1.0,
    ) -> Result:
        """
        Run some items through a model and give their outputs, in order.

        They are one array whose first axis is the items, or a list where their shapes differ. What is of a `key` has
        its turns with other keys' of this client, by their weights; without one it has none.

        Raises the worker's error as one of ours, InvalidInput if there is no item, ModelNotFound for a model nobody
        serves, Unavailable when the queue or all its workers are gone, DeadlineExceeded after `timeout` seconds, and
        Overloaded when its queue is full and there is a timeout; without one it waits for room.
        Cancelling the call takes the job back.
        """
        if not items:
            raise InvalidInput("there is nothing to run: the list is empty", param="input")
        lane = lane or self.usual_lane(model, items)
        if lane not in LANES:
            raise InvalidInput(f"lane must be {' or '.join(LANES)}, not {lane!r}", param="lane")
        timeout = self.timeout if timeout is None and lane == "online" else timeout
        backoff = Backoff()
        while True:
            await self._watch.check(model, awaited=timeout is not None)
            tickets = [*self._tickets(model, task, items, options or {}, lane, timeout, key)]
            try:
                return await self._run(model, tickets, timeout, key, weight)
            except Overloaded as error:
                if timeout is not None:
                    wait = error.retry_after or self._watch.retry_after(model, lane)
                    raise Overloaded(error.message, retry_after=wait) from None
            await backoff.pause()  # who has no deadline waits for room

    async def _run(self, model: str, tickets: list[Ticket], timeout: float | None, key: str, weight: float) -> Result:
        """Queue the jobs of one request, in its key's turns if it has one, and await their results."""
        outbox = self._outbox(model)
        try:
            if key:
                self._turnstile.turns(model, tickets[0].job.lane).add(key, weight, tickets)
            else:
                outbox.add(tickets)
            async with asyncio.timeout(timeout):
                return join(await _first_failure([ticket.future for ticket in tickets]))
        except TimeoutError:
            raise DeadlineExceeded(f"{model} gave no answer within {timeout:g} s") from None
        finally:
            self._release(outbox, tickets)

    async def labels(self, model: str) -> Sequence[str]:
        """Name a classifier's labels, in the order of its outputs; raises Unavailable if no worker is ready now."""
        return await self._watch.labels(model)

    async def models(self) -> list[ModelStatus]:
        """Ask the queue which models are served, and by whom; raises Unavailable if it cannot be reached."""
        await self._watch.refresh_soon()
        return list(self.status.values())

    @property
    def status(self) -> Mapping[str, ModelStatus]:
        """The models as of the last look, about a second ago at most, by name."""
        return self._watch.status

    def best(self, model: str) -> WorkerInfo | None:
        """Give one worker that stands for all of a model's, as of the last look; None if none is ready."""
        return self._watch.best(model)

    def estimate(self, model: str, items: Sequence[Item]) -> int:
        """Estimate the tokens of some items, as workers publish what a character is to them."""
        return cost_of(items, self._watch.limits(model))

    def usual_lane(self, model: str, items: Sequence[Item]) -> Lane:
        """Give the lane of a request that names none; see `lanes.usual_lane`."""
        best = self._watch.best(model)
        speed = best.tokens_per_second if best else 0.0
        return usual_lane(items, self._watch.limits(model), self.online_max_items, speed)

    @property
    def waiting(self) -> int:
        """How many jobs await their reply."""
        return len(self._inbox)

    def fail(self, error: InfinityError) -> None:
        """Settle all that waits with an error, as when there is no time left to wait."""
        self._inbox.fail(error)

    def _tickets(
        self,
        model: str,
        task: str,
        items: Sequence[Item],
        options: dict[str, Any],
        lane: Lane,
        timeout: float | None,
        key: str,
    ) -> Iterator[Ticket]:
        """Cut a request into jobs; those that take turns are no larger than a batch, as a turn is a job."""
        ttl_ms = None if timeout is None else int(timeout * 1000)
        create_future = asyncio.get_running_loop().create_future
        first = 0
        keep_end = options.get("truncation_side") == "left"
        tokens = self._turnstile.job_tokens(model) if key else JOB_TOKENS
        limits = self._watch.limits(model)
        most_bytes = JOB_BYTES
        if task in UNRUN:
            limits, most_bytes = limits._replace(max_chars=0), UNRUN_BYTES  # no text is cut unseen
        for part in split(items, limits, keep_end=keep_end, tokens=tokens, most_bytes=most_bytes):
            job_id = f"{self._prefix}-{next(self._numbers)}"
            job = Job(job_id, task, part.items, options, self._inbox.key, lane, part.cost, ttl_ms, key)
            ticket = Ticket(model, job, create_future(), first)
            first += len(part.items)
            self._inbox.expect(ticket)
            yield ticket

    def _release(self, outbox: Outbox, tickets: list[Ticket]) -> None:
        """Stop waiting; what is not settled by now, as the siblings of a part that failed, is taken back."""
        unsettled = []
        for ticket in tickets:
            self._inbox.forget(ticket)
            if ticket.future.cancel() or ticket.future.cancelled():
                unsettled.append(ticket)
            else:
                ticket.future.exception()  # seen, even where a sibling failed first
        if unsettled:
            outbox.drop(unsettled)

    def _outbox(self, model: str) -> Outbox:
        outbox = self._outboxes.get(model)
        if outbox is None:
            limits = partial(self._limits_of, model)
            outbox = Outbox(self._redis, keys.check_name(model), limits, lambda: self._inbox.losses)
            self._outboxes[model] = outbox
            self._start(outbox.run, f"jobs of {model}")
        return outbox

    def _limits_of(self, model: str) -> QueueLimits:
        best = self._watch.best(model)
        return self._limits.at(best.tokens_per_second if best else 0.0)

    def _queue_again(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            self._outbox(ticket.model).add([ticket])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            await self._beat()

    async def _beat(self) -> None:
        try:
            await self._inbox.keep()
            await self._watch.refresh()
            self._trouble.reset()
        except Exception as error:
            if not is_outage(error):
                raise
            self._trouble.failed("keep the reply channel", error)

    def _start(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.create_task(self._keep_going(work, name), name=f"infinity {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_going(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Begin anew what breaks: callers are told, rather than left waiting, and later ones are served."""
        while True:
            try:
                await work()
                return
            except Exception as error:
                logger.critical("%s broke, and begins anew", name, exc_info=error)
                self._inbox.fail(Unavailable("the client of the queue broke; its log says why", retry_after=1.0))
                await asyncio.sleep(_HEARTBEAT)


async def _first_failure(futures: list[asyncio.Future[Result]]) -> list[Result]:
    """Await all, or the first that fails."""
    if len(futures) == 1:
        return [await futures[0]]
    return await asyncio.gather(*futures)
