"""A worker's heartbeat: that it lives, and what it says of itself."""

import asyncio
import logging
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis

from infinity_pool.broker.connection import Backoff, is_outage
from infinity_pool.broker.presence import HEARTBEAT, REFUSAL_EXPIRY, WorkerInfo, beat, forget_worker, refused

logger = logging.getLogger(__name__)


class Pulse:
    """Beats every HEARTBEAT seconds; `measure` adds what changes from beat to beat."""

    def __init__(self, redis: Redis, model: str, worker_id: str, *, mix: bool = False) -> None:
        self.info = WorkerInfo(id=worker_id, model=model, host=platform.node(), pid=os.getpid(), stage="starting")
        self.measure: Callable[[], dict[str, Any]] = dict
        self.heard = -math.inf
        """When, on the monotonic clock, the queue last took a heartbeat."""
        self._trouble = Backoff()
        self._redis = redis
        self._mix = mix

    def say(self, **changes: Any) -> None:
        """Change what the next beat says."""
        self.info = replace(self.info, **changes)

    def progress(self, stage: str, done: float | None = None) -> None:
        """Say how far loading has come; called from the loading thread."""
        logger.info("%s: %s", self.info.model, stage)
        self.say(stage=stage, progress=done)

    async def now(self) -> None:
        """Beat once; an outage is only logged, since the next beat will tell. Raises presence.Mixed."""
        try:
            await beat(self._redis, replace(self.info, **self.measure()), mix=self._mix)
            self.heard = time.monotonic()
            self._trouble.reset()
        except Exception as error:
            if not is_outage(error):
                raise
            self._trouble.failed("send a heartbeat", error)

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.now()
            await asyncio.sleep(HEARTBEAT)

    async def stop(self, refusal: str = "") -> None:
        """Beat no more, and be known to be gone; why one could not serve at all is left to be read for a while."""
        try:
            if refusal:
                await beat(self._redis, refused(self.info, refusal), expiry=REFUSAL_EXPIRY)
            await forget_worker(self._redis, self.info.model, self.info.id)
        except Exception as error:
            if not is_outage(error):
                raise
            logger.debug("the heartbeat is left to expire: %s", error)
