"""The child processes that a command keeps alive: workers, one a device and replica, and replicas of the API."""

import itertools
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis

from infinity_pool.api.metrics import shared_metrics
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.connection import connect, is_outage
from infinity_pool.broker.presence import forget_worker
from infinity_pool.cli.options import environment
from infinity_pool.cli.process import EXIT_INTERRUPTED
from infinity_pool.cli.stop import Stop, first_end
from infinity_pool.workers.device.devices import expand
from infinity_pool.workers.settings import WorkerSettings
from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.supervise import Child, Refused, Supervisor
from infinity_pool.workers.supervision.watchdog import Watchdog

MARGIN = 5.0
"""Seconds over the time a child gives itself to end, after which it is killed."""

_log = logging.getLogger(__name__)


def one_per_device(settings: WorkerSettings) -> list[WorkerSettings]:
    """Give the settings of each worker that some settings ask for: one a device, times the replicas."""
    devices = [device for device in expand(settings.device) for _ in range(settings.replicas)]
    ports = itertools.count(settings.admin_port) if settings.admin_port else itertools.repeat(0)
    return [
        replace(settings, device=device, replicas=1, admin_port=port)
        for device, port in zip(devices, ports, strict=False)
    ]


def worker_children(workers: Sequence[WorkerSettings], redis: Redis) -> list[Child]:
    """Give the processes of some workers; when one ends, the queue hears of it at once."""
    seen: Counter[str] = Counter()
    children = []
    for worker in workers:
        name = f"{worker.name}@{worker.device}"
        seen[name] += 1
        children.append(
            Child(
                name if seen[name] == 1 else f"{name}#{seen[name]}",
                _module("worker"),
                environment(worker),
                _forgetting(redis, worker.name),
            )
        )
    return children


async def watch(workers: Sequence[WorkerSettings], redis: Redis, supervisor: Supervisor) -> None:
    """Replace workers whose process lives and does nothing."""
    models = {worker.name for worker in workers}
    await Watchdog(redis, models, supervisor, min(worker.stall_timeout for worker in workers)).run()


def api_children(settings: ApiSettings, count: int, silence: float, folder: str) -> list[Child]:
    """
    Give so many replicas of the API; `silence` as of supervise.Child.

    If there are several, they share the port and, through files in `folder`, what /metrics says.
    """
    if count == 1:
        return [Child("api", _module("api"), environment(settings), silence=silence)]
    shared = environment(replace(settings, reuse_port=True))
    return [
        Child(f"api#{number}", _module("api"), shared | shared_metrics(folder, number), silence=silence)
        for number in range(1, count + 1)
    ]


async def supervise_workers(workers: Sequence[WorkerSettings], *, once: bool = False) -> int:
    """Keep some workers alive until told to stop, or let each run `once`; give the exit code."""
    stop = Stop()
    patience = max(worker.drain_timeout for worker in workers) + MARGIN
    async with connect(workers[0].redis_url) as redis:
        with closing(Lifeline()) as lifeline:
            async with Supervisor(
                worker_children(workers, redis), lifeline, patience=patience, once=once
            ) as supervisor:
                stop.at_once.append(supervisor.kill)
                code = await outcome(stop.asked.wait(), supervisor.wait(), watch(workers, redis, supervisor))
    return EXIT_INTERRUPTED if stop.twice else code


async def outcome(*things: Coroutine[Any, Any, Any]) -> int:
    """Wait until the first of several things ends; give the exit code: 1 if a child refused to run, else 0."""
    try:
        await first_end(*things)
    except Refused as refused:
        _log.error("stopping, since %s cannot run", refused)
        return 1
    return 0


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"infinity_pool.cli.{name}"]


def _forgetting(redis: Redis, model: str) -> Callable[[str], Awaitable[None]]:
    async def forget(worker_id: str) -> None:
        try:
            await forget_worker(redis, model, worker_id)
        except Exception as error:
            if not is_outage(error):
                raise
            _log.warning("%s ended, and the queue hears of it by its silence only: %s", worker_id, error)

    return forget
