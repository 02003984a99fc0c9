"""What brings jobs to a worker: takes from both lanes, the dead's leavings, and word of those nobody wants any more."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.connection import Backoff, connect, identify, is_outage
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.messages import LANES, Lane
from infinity_pool.broker.presence import EXPIRY, HEARTBEAT, read_model
from infinity_pool.workers.holdings import Holdings

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
            watchers = [group.create_task(work, name=name) for work, name in self._watches()]
            takers = [group.create_task(self._take(lane), name=f"take {lane}") for lane in LANES]
            await asyncio.wait(takers)
            for watcher in watchers:
                watcher.cancel()
        await self._redis.aclose()

    def _watches(self) -> list[tuple[Coroutine[Any, Any, None], str]]:
        return [(self._reap(), "reap"), (self._hear_cancelled(), "cancelled")]

    async def _take(self, lane: Lane) -> None:
        """Take one lane's jobs; after any trouble, and now and then, ask for what was sent but never arrived."""
        checked, backoff = 0.0, Backoff()
        while not self._stopping.is_set():
            try:
                if time.monotonic() - checked > HEARTBEAT:
                    await self._adopt(lane)
                    checked = time.monotonic()
                if room := await self._holdings.room(lane, HEARTBEAT):
                    await self._hand_over(await self._consumer.take(lane, room))
                backoff.reset()
            except Exception as error:
                if not is_outage(error):
                    raise
                logger.warning("cannot take jobs: %s", error)
                checked, self._calm_since = 0.0, time.monotonic()
                await backoff.pause()

    async def _adopt(self, lane: Lane) -> None:
        lost = await self._consumer.recover(lane, self._holdings.entries(lane))
        if lost:
            logger.warning("%d jobs of the %s lane had been sent here and not arrived", len(lost), lane)
            await self._hand_over(lost)

    async def _hand_over(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            await self._accept(deliveries)

    async def _reap(self) -> None:
        """Take over what dead workers held, unless the queue itself was in trouble a moment ago."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                await self._notice_restart()
                if time.monotonic() - self._calm_since > 2 * EXPIRY:
                    await self._reap_once()
            except Exception as error:
                if not is_outage(error):
                    raise
                self._calm_since = time.monotonic()

    async def _notice_restart(self) -> None:
        """Give everybody time to show a heartbeat to a server that has just come up."""
        server = await identify(self._redis)
        self._calm_since = max(self._calm_since, time.monotonic() - server.uptime)

    async def _reap_once(self) -> None:
        status = await read_model(self._redis, self._consumer.model)
        dead = await self._consumer.dead([self._consumer.id, *(worker.id for worker in status.workers)])
        for lane, names in dead.items():
            for name in names:
                if taken := await self._consumer.reap(lane, name):
                    logger.warning("took over %d jobs of worker %s, which is dead", len(taken), name)
                    await self._accept(taken)

    async def _hear_cancelled(self) -> None:
        """Drop jobs whose callers have gone; a message that is missed costs only work."""
        backoff = Backoff()
        while True:
            try:
                await self._listen(self._redis)
            except Exception as error:
                if not is_outage(error):
                    raise
                await backoff.pause()

    async def _listen(self, redis: Redis) -> None:
        async with redis.pubsub() as subscription:
            await subscription.subscribe(keys.cancelled(self._consumer.model))
            while True:
                message = await subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is not None:
                    self._holdings.drop(message["data"].decode().split(","))
