"""A producer whose replies outlive it: killed and started again under its name, it goes on where it was."""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import BLOCK_MS, Backoff, command, connect, through_outages
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import LANES, Item, Job, Lane, Reply, encode_job, replies_in
from infinity_pool.broker.outbox import QueueLimits
from infinity_pool.broker.splitting import JOB_ITEMS, Limits, split
from infinity_pool.broker.streams import Entry, entries_of


class Producer:
    """
    Queues bulk jobs under ids of its own, and hands out their replies; an async context manager.

    Its reply channel has its `name` and is kept for `keep` seconds after it was last seen, whether it runs or not; at
    most `max_in_flight` jobs are open, which bounds what the channel may hold. An outage of the queue is waited out.
    One producer of a name at a time. Where Redis itself lost its data, what was open is forgotten: queue it again.
    """

    def __init__(
        self,
        redis: "str | Redis",
        name: str,
        *,
        max_in_flight: int = 1000,
        keep: float = 24 * 3600.0,
        limits: QueueLimits | None = None,
    ) -> None:
        self.max_in_flight = max_in_flight
        self._channel = keys.replies(keys.check_name(name))
        self._open = keys.open_jobs(name)
        self._keep_ms = int(keep * 1000)
        self._limits = (limits or QueueLimits()).at(0.0)
        self._owned = isinstance(redis, str)
        self._redis = connect(redis) if isinstance(redis, str) else redis

    async def __aenter__(self) -> Self:
        await through_outages(self._keep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            await self._redis.aclose()

    async def put(
        self,
        model: str,
        items: Sequence[Item],
        *,
        id: str,
        task: str = "embed",
        options: dict[str, Any] | None = None,
        lane: Lane = "bulk",
    ) -> bool:
        """
        Queue one job of up to 64 items, waiting for room; false if the job of that id is queued already.

        Raises InvalidInput if it is more than one job.
        """
        parts = list(split(items, Limits()))
        if len(items) > JOB_ITEMS or not parts:
            raise InvalidInput(f"a job is 1 to {JOB_ITEMS} items, not {len(items)}", param="items")
        cost = sum(part.cost for part in parts)
        data = encode_job(Job(id, task, list(items), options or {}, self._channel, lane, cost))
        if not await self._claim(id):
            return False
        names = [*(keys.jobs(model, each) for each in LANES), keys.waiting(keys.check_name(model))]
        limits = self._limits
        args = [limits.items, limits.bytes, 1, limits.tokens, LANES.index(lane) + 1, cost, len(items), data]
        backoff = Backoff()
        while not (await through_outages(scripts.run, self._redis, "submit", names, args))[0]:
            await backoff.pause()  # the queue is full: what waits must be run first
        await through_outages(command, self._redis, "HSET", self._open, id, "queued")
        return True

    async def replies(self) -> AsyncGenerator[Reply, None]:
        """
        Give the replies of this producer's jobs, those of an earlier life too, until none is open.

        A reply is taken off its channel when the next is asked for, so that a crash while it is handled loses
        nothing; one that comes twice is given once.
        """
        while await through_outages(command, self._redis, "HLEN", self._open):
            await through_outages(self._keep)
            for entry, fields in await through_outages(self._read):
                for reply in replies_in(fields):
                    if await through_outages(command, self._redis, "HEXISTS", self._open, reply.job_id):
                        yield reply
                        await through_outages(command, self._redis, "HDEL", self._open, reply.job_id)
                await through_outages(command, self._redis, "XDEL", self._channel, entry)

    async def open_jobs(self) -> set[str]:
        """Give the ids of the jobs whose replies have not been handled."""
        return {name.decode() for name in await through_outages(command, self._redis, "HKEYS", self._open)}

    async def _claim(self, id: str) -> bool:
        args = [id, self.max_in_flight, self._keep_ms]
        backoff = Backoff()
        while (claimed := await through_outages(scripts.run, self._redis, "claim", [self._open], args)) < 0:
            await backoff.pause()
        return bool(claimed)

    async def _read(self) -> list[Entry]:
        parts = ("COUNT", 16, "BLOCK", BLOCK_MS, "STREAMS", self._channel, "0")
        return entries_of(await command(self._redis, "XREAD", *parts))

    async def _keep(self) -> None:
        await scripts.run(self._redis, "channel", [self._channel], [self._keep_ms])
