"""The client of a backfill: of a server, of the queue of others' workers, or of a queue and workers of its own."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any, NamedTuple

from infinity_pool.api.clients.client import AnyClient, Client
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.presence import ModelStatus
from infinity_pool.broker.settings import options_of
from infinity_pool.cli.backfill.settings import BackfillSettings
from infinity_pool.cli.children import MARGIN, one_per_device, watch, worker_children
from infinity_pool.cli.serve.run import keep, shared
from infinity_pool.cli.serve.screen import screen
from infinity_pool.cli.stop import Stop, first_end
from infinity_pool.workers.settings import ModelSettings, WorkerSettings
from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.supervise import Supervisor

_LOOK = 0.1  # s between two looks at a worker that loads
_DRAIN = 1.0  # s for workers to end, whose work is taken back


class Served(NamedTuple):
    """A client and the name to ask for; `keeping` is what must go on meanwhile, and ends with an error alone."""

    client: AnyClient
    model: str
    keeping: list[Coroutine[Any, Any, Any]]


@asynccontextmanager
async def served(settings: BackfillSettings, stop: Stop) -> AsyncIterator[Served]:
    """Give what a backfill is run with."""
    if settings.url or settings.redis_url:
        options = {"api_key": settings.api_key} if settings.url else {}
        async with Client(settings.url or settings.redis_url, **options) as client:
            yield Served(client, settings.model, [])
        return
    with EmbeddedServer.start() as server:
        async with _workers(settings, server, stop) as (client, keeping):
            yield Served(client, settings.name, keeping)


@asynccontextmanager
async def _workers(
    settings: BackfillSettings, server: EmbeddedServer, stop: Stop
) -> AsyncIterator[tuple[AnyClient, list[Coroutine[Any, Any, Any]]]]:
    """Start workers on a server of our own, and wait until one of them is ready."""
    workers = shared(one_per_device(_worker(settings, server.url)))
    with closing(Lifeline()) as lifeline:
        async with (
            connect(server.url) as redis,
            screen() as shown,
            Supervisor(
                worker_children(workers, redis), lifeline, patience=_DRAIN + MARGIN, stderr=shown.stderr
            ) as working,
            Client(server.url) as client,
        ):
            stop.at_once.append(working.kill)

            async def ready() -> None:
                while not any(model.ready for model in await client.models()):
                    shown.show(_states(client, settings.name, working))
                    await asyncio.sleep(_LOOK)

            await first_end(ready(), stop.asked.wait(), working.wait())
            shown.done()
            yield client, [working.wait(), watch(workers, redis, working), keep(server)]


def _states(client: AnyClient, model: str, working: Supervisor) -> dict[str, Any]:
    status = client.status.get(model, ModelStatus(model, [], {}))
    infos = {info.id: info for info in status.workers}
    return {child: infos.get(worker_id) for child, worker_id in working.worker_ids.items()}


def _worker(settings: BackfillSettings, redis_url: str) -> WorkerSettings:
    """Give the settings of the worker; the number format that is asked for goes with each job."""
    values = {name: getattr(settings, name) for name in options_of(ModelSettings)}
    worker = WorkerSettings(**values, redis_url=redis_url, drain_timeout=_DRAIN, log_level=settings.log_level)
    return replace(worker, embedding_dtype="float32", log_format=settings.log_format)
