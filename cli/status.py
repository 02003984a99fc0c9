"""infinity status: the models, their workers, what waits for them, and how fast it goes."""

import asyncio
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click
import orjson
from redis.asyncio import Redis
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from infinity_pool.broker import batches
from infinity_pool.broker.connection import connect
from infinity_pool.broker.messages import LANES
from infinity_pool.broker.presence import ModelStatus, WorkerInfo, read_models
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.cli.console import console, plain_table
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.outages import telling_outages
from infinity_pool.cli.process import run_process
from infinity_pool.workers.device.sizes import shown

_WORDS = ("model", "process", "state", "engine", "device", "dtype")
_NUMBERS = ("running", "items/s", "tokens/s", "device time", "memory", "at best", "items done")
_LEAST = ("dtype", "at best", "items done", "memory", "device time", "engine", "device")
"""The columns that go first where there is no room."""
_UNBOUNDED = 10_000  # columns, to measure what a table would take

_own = partial(option, scope="status")


@dataclass(frozen=True, kw_only=True)
class StatusSettings(CommonSettings):
    """What `infinity status` is told."""

    interval: float = _own("Seconds over which rates are measured.", default=1.0, minimum=0.1)
    json: bool = _own("Print JSON instead of tables.", default=False)
    watch: bool = _own("Go on until Ctrl-C.", default=False)
    here: bool = _own("Print nothing; exit with 0 if a worker on this host is ready, else with 1.", default=False)


@dataclass(frozen=True)
class Batches:
    """Of /v1/batches, how many are run and how many wait for that."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Look:
    """What was seen at one moment; `at` is in seconds of a monotonic clock."""

    at: float
    models: Sequence[ModelStatus]
    batches: Batches = Batches()

    def workers(self) -> dict[str, WorkerInfo]:
        """Give all workers by id."""
        return {worker.id: worker for model in self.models for worker in model.workers}


@dataclass(frozen=True)
class Rate:
    """What a worker got done, per second, and the part of the time for which it used its device."""

    items: float = 0.0
    tokens: float = 0.0
    device: float = 0.0


Rates = Mapping[str, Rate]


@click.command(params=settings_options(StatusSettings))
def command(**values: Any) -> None:
    """
    Show models, workers, queue depths and rates.

    \b
      infinity status --redis-url redis://queue:6379/0 --watch
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(StatusSettings, values)
    sys.exit(run_process(settings, lambda: _status(settings)))


async def _status(settings: StatusSettings) -> int:
    async with connect(settings.redis_url) as redis:
        before = await _look(redis)
        if settings.here:
            return 0 if is_ready_here(before) else 1
        if settings.watch and not settings.json:
            await _watch(redis, before, settings.interval)
        while True:
            await asyncio.sleep(settings.interval)
            after = await _look(redis)
            _print(after, rates(before, after), as_json=settings.json)
            if not settings.watch:
                return 0
            before = after


async def _watch(redis: Redis, before: Look, interval: float) -> None:
    with Live(tables(before, {}), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(interval)
            after = await _look(redis)
            live.update(tables(after, rates(before, after)), refresh=True)
            before = after


async def _look(redis: Redis) -> Look:
    with telling_outages():
        free, run = await batches.turns(redis)
        return Look(time.monotonic(), await read_models(redis), Batches(run.total(), len(free)))


def is_ready_here(look: Look) -> bool:
    """Say whether a worker on this host is ready."""
    return any(worker.state == "ready" and worker.host == platform.node() for worker in look.workers().values())


def rates(before: Look, after: Look) -> Rates:
    """Give each worker's rates between two looks; one that is new counts from its start."""
    seconds = max(after.at - before.at, 1e-9)
    earlier = before.workers()
    result = {}
    for worker in after.workers().values():
        then = earlier.get(worker.id)
        items, tokens, used = (then.items_done, then.tokens_done, then.device_seconds) if then else (0, 0, 0.0)
        done = (worker.items_done - items, worker.tokens_done - tokens, worker.device_seconds - used)
        result[worker.id] = Rate(*(count / seconds for count in done))
    return result


def to_json(look: Look, rates: Rates) -> dict[str, Any]:
    """Give the same as the tables, for programs."""
    return {
        "models": [
            {
                "name": model.name,
                "ready": model.ready,
                "waiting": {lane: asdict(waiting) for lane, waiting in model.waiting.items()},
                "dead_letters": model.dead,
                "workers": [asdict(worker) | {"rate": asdict(rates[worker.id])} for worker in model.workers],
            }
            for model in look.models
        ],
        "batches": asdict(look.batches),
    }


def tables(look: Look, rates: Rates) -> Group:
    """Draw the models, with what waits for them, and the workers; and tell of batches and dead letters, if any."""
    return Group(_models_table(look), WorkersTable(look, rates), *_told(look))


def _told(look: Look) -> Iterator[str]:
    if look.batches != Batches():
        yield f"batches: {look.batches.running} running, {look.batches.waiting} waiting"
    for model in look.models:
        if model.dead:
            yield f"dead letters of {escape(model.name)}: {model.dead:,}; infinity dead --model shows them"


def _models_table(look: Look) -> Table:
    table = plain_table("models", ["model", "ready", "workers"], [f"{lane} waiting" for lane in LANES])
    for model in look.models:
        ready = sum(worker.state == "ready" for worker in model.workers)
        depths = [f"{model.waiting[lane].items:,} items, {model.waiting[lane].tokens:,} tokens" for lane in LANES]
        table.add_row(escape(model.name), "yes" if model.ready else "no", f"{ready} of {len(model.workers)}", *depths)
    return table


@dataclass(frozen=True)
class WorkersTable:
    """The workers, one a row; columns of the least worth are left out where there is no room for all."""

    look: Look
    rates: Rates

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what there is room for; where even the fewest columns are too wide, names fold."""
        for count in range(len(_LEAST) + 1):
            table = self._without(_LEAST[:count])
            if Measurement.get(console, options.update_width(_UNBOUNDED), table).maximum <= options.max_width:
                break
        yield table

    def _without(self, left_out: Sequence[str]) -> Table:
        words, numbers = ([each for each in headings if each not in left_out] for headings in (_WORDS, _NUMBERS))
        table = plain_table("workers", words, numbers)
        for worker in self.look.workers().values():
            cells = _worker_cells(worker, self.rates.get(worker.id, Rate()))
            table.add_row(*(cells[heading] for heading in (*words, *numbers)))
        return table


def _worker_cells(worker: WorkerInfo, rate: Rate) -> dict[str, str]:
    return {
        "model": escape(worker.model),
        "process": f"{worker.host}:{worker.pid}",
        "state": _state(worker),
        "engine": worker.engine,
        "device": worker.device,
        "dtype": worker.dtype,
        "running": f"{worker.jobs_held:,}",
        "items/s": f"{rate.items:,.1f}",
        "tokens/s": f"{rate.tokens:,.0f}",
        "device time": f"{rate.device:.0%}" + (f", weight {worker.device_share:g}" if worker.device_share else ""),
        "memory": shown(worker.memory),
        "at best": f"{worker.tokens_per_second:,.0f}",
        "items done": f"{worker.items_done:,}",
    }


def _state(worker: WorkerInfo) -> str:
    if worker.state == "refused":
        return f"refused: {escape(worker.stage)}"
    if worker.state != "loading":
        return worker.state
    percent = "" if worker.progress is None else f" {worker.progress:.0%}"
    return f"{worker.stage or 'loading'}{percent}"


def _print(look: Look, rates: Rates, *, as_json: bool) -> None:
    if as_json:
        click.echo(orjson.dumps(to_json(look, rates)))
    else:
        console().print(tables(look, rates))
