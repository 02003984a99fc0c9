"""Runs the queue, the workers and the API of one machine as child processes, until told to stop."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
from redis.asyncio import Redis

from infinity_pool.api.batches.storage import local_folder
from infinity_pool.api.network.listening import check
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.settings import options_of
from infinity_pool.cli.children import (
    MARGIN,
    api_children,
    one_per_device,
    outcome,
    supervise_workers,
    watch,
    worker_children,
)
from infinity_pool.cli.process import EXIT_INTERRUPTED
from infinity_pool.cli.serve.address import admin_url_of, is_healthy, url_of
from infinity_pool.cli.serve.ready import until_ready, welcome
from infinity_pool.cli.serve.screen import Screen, screen
from infinity_pool.cli.serve.settings import ServeSettings
from infinity_pool.cli.stop import Stop
from infinity_pool.workers.settings import ModelSettings, WorkerSettings
from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.supervise import Supervisor, describe

Settings = TypeVar("Settings")

_SHORTEST_SILENCE = 2.0  # s; signs come twice a second
_LONGEST_SILENCE = 10.0  # s

_log = logging.getLogger(__name__)


async def serve(settings: ServeSettings, models: Sequence[ModelSettings]) -> int:
    """Serve models until told to stop, or only fetch them; give the exit code."""
    if settings.preload_only:
        return await _preload(settings, models)
    settings = _checked(settings)
    stop = Stop()
    with _queue(settings) as (url, server):
        code = await _supervise(replace(settings, redis_url=url), models, server, stop)
    return EXIT_INTERRUPTED if stop.twice else code


def _checked(settings: ServeSettings) -> ServeSettings:
    """Settle on a port; raises InvalidInput for what the API could not open: better now than when models are loaded."""
    check(settings)
    if settings.uds and settings.api_processes > 1:
        raise InvalidInput("--uds is for one API process, as they cannot share it", param="api_processes")
    if settings.admin_port:
        free_port(settings.admin_host or settings.host, settings.admin_port, "--admin-port")
    return replace(settings, port=free_port(settings.host, settings.port)) if settings.tcp else settings


async def _preload(settings: ServeSettings, models: Sequence[ModelSettings]) -> int:
    with _queue(settings) as (url, _):
        asked = [_worker(replace(settings, redis_url=url), model) for model in models]
        return await supervise_workers([one_per_device(worker)[0] for worker in asked], once=True)


async def _supervise(
    settings: ServeSettings, models: Sequence[ModelSettings], server: EmbeddedServer | None, stop: Stop
) -> int:
    """Start workers and API; they are stopped in the reverse order: first what takes requests, then what answers."""
    asked = [_worker(settings, model) for model in models]
    workers = shared([worker for each in asked for worker in one_per_device(each)])
    with closing(Lifeline()) as lifeline, TemporaryDirectory(prefix="infinity-metrics-") as folder:
        async with (
            connect(settings.redis_url) as redis,
            screen() as shown,
            Supervisor(
                worker_children(workers, redis),
                lifeline,
                patience=settings.drain_timeout + MARGIN,
                stderr=shown.stderr,
            ) as working,
            Supervisor(
                api_children(_api(settings, models), settings.api_processes, _silence(settings), folder),
                lifeline,
                patience=settings.shutdown_delay + settings.timeout + MARGIN,
                stderr=shown.stderr,
            ) as answering,
        ):
            stop.at_once += [working.kill, answering.kill]
            names = {worker.name for worker in workers}
            announcing = _announce(settings, redis, names, working, shown, server.url if server else "")
            keeping = [keep(server)] if server else []
            watching = watch(workers, redis, working)
            return await outcome(stop.asked.wait(), working.wait(), answering.wait(), announcing, watching, *keeping)


def shared(workers: Sequence[WorkerSettings]) -> list[WorkerSettings]:
    """Give all workers of a device their turns if any of them asks for turns."""
    devices = {worker.device for worker in workers if worker.shares_device}
    return [
        replace(each, device_share=each.device_share or 1.0) if each.device in devices else each for each in workers
    ]


def _silence(settings: ServeSettings) -> float:
    """Give the seconds that an API process may stand still; a long body may take its loop one or two."""
    return max(_SHORTEST_SILENCE, min(_LONGEST_SILENCE, settings.stall_timeout))


def _worker(settings: ServeSettings, model: ModelSettings) -> WorkerSettings:
    """Give the settings of a model's workers; the port for those who run it is the API's here."""
    return replace(_combined(WorkerSettings, settings, model), admin_port=0)


def _api(settings: ServeSettings, models: Sequence[ModelSettings]) -> ApiSettings:
    """Give the settings of the API: unless told otherwise, it is ready when all models are that are served here."""
    names = settings.require_model or tuple(model.name for model in models)
    return _combined(ApiSettings, replace(settings, require_model=names))


async def _announce(
    settings: ServeSettings, redis: Redis, models: set[str], workers: Supervisor, shown: Screen, private_url: str
) -> None:
    ready = await until_ready(redis, models, workers, shown, partial(is_healthy, settings))
    admin_url = admin_url_of(settings)
    keyed = bool(settings.api_key_file) or settings.require_key
    click.echo(welcome(url_of(settings), ready, settings.api_key, private_url, admin_url=admin_url, keyed=keyed))
    await asyncio.Event().wait()  # there is no more to say; others end the command


async def keep(server: EmbeddedServer) -> None:
    """Start the embedded server again, on the same socket, whenever it dies; raises Unavailable if it cannot be."""
    while server.process is not None:
        code = await asyncio.to_thread(server.process.wait)
        _log.error("the embedded server ended (%s); it is started again, and jobs are queued anew", describe(code))
        server.launch()


@contextmanager
def _queue(settings: ServeSettings) -> Iterator[tuple[str, EmbeddedServer | None]]:
    """Give the URL of the queue, and the server if it is ours."""
    if settings.redis_url:
        yield settings.redis_url, None
        return
    with EmbeddedServer.start(kept=_kept(settings)) as server:
        yield server.url, server


def _kept(settings: ServeSettings) -> Path | None:
    """Give the folder where a queue of our own keeps what it holds: beside the files, whose batches are in it."""
    folder = local_folder(settings.files) if settings.files else None
    if settings.files and folder is None:
        _log.warning(
            "batches end with this command: to have them outlive it, name a Redis that persists by --redis-url"
        )
    return folder / "queue" if folder else None


def free_port(host: str, port: int, flag: str = "--port") -> int:
    """
    Give the port to listen on, any free one in place of 0.

    Raises InvalidInput if it is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        reason = f"another process does; {flag} takes another" if error.errno == errno.EADDRINUSE else error.strerror
        raise InvalidInput(f"cannot listen on {host}:{port}: {reason}", param="port") from error


def _combined(kind: type[Settings], *sources: object) -> Settings:
    """Make settings of those options of several others that they share."""
    values: dict[str, Any] = {}
    for source in sources:
        values |= {name: getattr(source, name) for name in options_of(type(source))}
    return kind(**{name: values[name] for name in options_of(kind) if name in values})
