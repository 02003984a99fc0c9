"""Finds workers whose process lives and does nothing: stopped, or stuck in a batch. The supervisor replaces them."""

import asyncio
import logging
from collections.abc import Collection

from redis.asyncio import Redis

from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.presence import EXPIRY, HEARTBEAT, WorkerInfo, read_model, require_writes
from infinity_pool.workers.supervision.supervise import Supervisor

_SILENCE = 5.0  # s without a heartbeat, after its expiry, that are no longer a machine's hiccup
_CERTAINTY = 2 * HEARTBEAT  # s; what hung on the queue is written in the first moment after an outage

logger = logging.getLogger(__name__)


class Watchdog:
    """
    Watches the heartbeats of a supervisor's workers.

    A worker calls itself stuck when it has had work and finished no batch for its --stall-timeout. One that was ready
    and is silent is stopped, or its event loop is: it is given `stall_timeout` seconds, _SILENCE at most. While the
    queue cannot be reached, or takes no heartbeats, nothing is known, and nobody is blamed.
    """

    def __init__(self, redis: Redis, models: Collection[str], supervisor: Supervisor, stall_timeout: float) -> None:
        self._redis = redis
        self._models = models
        self._supervisor = supervisor
        self._silence = max(EXPIRY, min(_SILENCE, stall_timeout))
        self._was_ready: set[str] = set()
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Watch until the supervisor stops."""
        while not self._supervisor.stopping:
            try:
                self._judge(await self._look(), asyncio.get_running_loop().time())
            except Exception as error:
                if not is_outage(error):
                    raise
                self._since.clear()
            await asyncio.sleep(HEARTBEAT)

    async def _look(self) -> dict[str, WorkerInfo]:
        await require_writes(self._redis)
        statuses = await asyncio.gather(*(read_model(self._redis, name) for name in self._models))
        return {worker.id: worker for status in statuses for worker in status.workers}

    def _judge(self, seen: dict[str, WorkerInfo], now: float) -> None:
        ours = set(self._supervisor.worker_ids.values())
        self._was_ready = (self._was_ready & ours) | {one.id for one in seen.values() if one.state == "ready"}
        self._was_ready -= {one.id for one in seen.values() if one.state == "draining"}
        patience = {worker_id: self._patience(worker_id, seen.get(worker_id)) for worker_id in ours}
        self._since = {one: self._since.get(one, now) for one, seconds in patience.items() if seconds is not None}
        for worker_id, since in self._since.items():
            if now - since >= (patience[worker_id] or 0.0):
                logger.error("worker %s is %s: it is killed", worker_id, _trouble(seen.get(worker_id)))
                self._supervisor.end(worker_id)

    def _patience(self, worker_id: str, info: WorkerInfo | None) -> float | None:
        """Say for how long to look on before a worker is killed; None if nothing is wrong with it."""
        if info is None:
            return self._silence if worker_id in self._was_ready else None
        return _CERTAINTY if info.state == "stuck" else None


def _trouble(info: WorkerInfo | None) -> str:
    return f"stuck, with no batch finished for {info.stalled:.0f} s" if info else "silent, though its process lives"
