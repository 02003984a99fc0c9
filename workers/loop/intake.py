"""What brings jobs to a worker: takes from both lanes, the dead's leavings, and word of those nobody wants any more."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.connection import Backoff, connect, end, identify, is_outage
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.messages import LANES, Lane
from infinity_pool.broker.presence import EXPIRY, HEARTBEAT, is_heard
from infinity_pool.workers.loop.holdings import Holdings

Accept = Callable[[list[Delivery]], Awaitable[None]]

logger = logging.getLogger(__name__)


class Intake:
    """Takes jobs while there is room for them, and hands them to `accept`."""

    def __init__(self, url: str, consumer: Consumer, holdings: Holdings, accept: Accept) -> None:
        self._consumer = consumer
        self._holdings = holdings
        self._accept = accept
        self._redis = connect(url)
        self._stopping = asyncio.Event()
        self._calm_since = -math.inf

    def stop(self) -> None:
        """Take no more; `run` returns once the reads that are under way have."""
        self._stopping.set()
        self._holdings.wake()

    async def run(self) -> None:
        """Take from both lanes side by side until stopped."""
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(self._hear_cancelled(), name="cancelled")
            takers = [group.create_task(self._take(lane), name=f"take {lane}") for lane in LANES]
            await asyncio.wait(takers)
            await end(hearing)
        await self._redis.aclose()

    async def _take(self, lane: Lane) -> None:
        """
        Take one lane's jobs, and at each heartbeat those that others left.

        It is one loop, since a job is given to this worker before it is held: two that looked at once would both
        take what the other is just receiving for lost.
        """
        checked, backoff = -math.inf, Backoff()
        while not self._stopping.is_set():
            try:
                if time.monotonic() - checked > HEARTBEAT:
                    await self._adopt(lane)
                    await self._reap(lane)
                    checked = time.monotonic()
                if room := await self._holdings.room(lane, HEARTBEAT):
                    await self._hand_over(await self._consumer.take(lane, room))
                backoff.reset()
            except Exception as error:
                if not is_outage(error):
                    raise
                backoff.failed("take jobs", error)
                checked, self._calm_since = -math.inf, time.monotonic()
                await backoff.pause()

    async def _adopt(self, lane: Lane) -> None:
        """Accept what was sent to this worker and never arrived, as after a connection that broke."""
        lost = await self._consumer.recover(lane, self._holdings.entries(lane))
        if lost:
            logger.warning("%d jobs of the %s lane had been sent here and not arrived", len(lost), lane)
            await self._hand_over(lost)

    async def _reap(self, lane: Lane) -> None:
        """Take over what dead workers held, unless the queue itself was in trouble a moment ago."""
        await self._notice_trouble()
        if time.monotonic() - self._calm_since < 2 * EXPIRY:
            return
        for name in await self._consumer.dead(lane):
            if taken := await self._consumer.reap(lane, name):
                logger.warning("took over %d jobs of worker %s, which is dead", len(taken), name)
                await self._hand_over(taken)

    async def _hand_over(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            await self._accept(deliveries)

    async def _notice_trouble(self) -> None:
        """Give everybody time to show a heartbeat to a server that has just come up, or that took none for a while."""
        server = await identify(self._redis)
        self._calm_since = max(self._calm_since, time.monotonic() - server.uptime)
        if not await is_heard(self._redis, self._consumer.model, self._consumer.id):
            self._calm_since = time.monotonic()

    async def _hear_cancelled(self) -> None:
        """Drop jobs whose callers have gone; a message that is missed costs only work."""
        backoff = Backoff()
        while True:
            try:
                await self._listen(self._redis, backoff)
            except Exception as error:
                if not is_outage(error):
                    raise
                backoff.failed("hear what is cancelled", error)
                await backoff.pause()

    async def _listen(self, redis: Redis, backoff: Backoff) -> None:
        async with redis.pubsub() as subscription:
            await subscription.subscribe(keys.cancelled(self._consumer.model))
            while True:
                message = await subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
                backoff.reset()
                if message is not None:
                    self._holdings.drop(message["data"].decode(errors="replace").split(","))
