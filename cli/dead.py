"""infinity dead: the jobs that broke their worker each time, and what to do with them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
import orjson
from redis.asyncio import Redis
from rich.markup import escape
from rich.table import Table

from infinity_pool.broker import keys
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.letters import Letter, drop_letters, read_letters, retry_letter
from infinity_pool.broker.messages import LANES, Item
from infinity_pool.broker.presence import read_models
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.cli.console import console, plain_table
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.outages import telling_outages
from infinity_pool.cli.process import run_process

_SHOWN = 40  # characters of an item

_own = partial(option, scope="dead")


@dataclass(frozen=True, kw_only=True)
class DeadSettings(CommonSettings):
    """What `infinity dead` is told."""

    model: str = _own("The model whose dead letters are meant, by the name clients ask for.")
    retry: tuple[str, ...] = _own("Queue the job of this id again, may be repeated.", default=())
    retry_all: bool = _own("Queue all of them again.", default=False)
    drop: tuple[str, ...] = _own("Forget the job of this id, may be repeated.", default=())
    json: bool = _own("Print JSON instead of a table.", default=False)


@click.command(params=settings_options(DeadSettings))
def command(**values: Any) -> None:
    """
    Show jobs that were given up; queue them again, or drop them.

    A job that broke its worker each of three times becomes a dead letter: it is kept aside and not run any more.
    Those of one model are shown after what --retry, --retry-all and --drop ask for is done.

    \b
      infinity dead --model BAAI/bge-small-en-v1.5 --retry-all
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(DeadSettings, values)
    sys.exit(run_process(settings, lambda: _dead(settings)))


async def _dead(settings: DeadSettings) -> int:
    async with connect(settings.redis_url) as redis:
        with telling_outages():
            await _check_known(redis, settings.model)
            await _act(redis, settings)
            letters = await read_letters(redis, settings.model)
    if settings.json:
        click.echo(orjson.dumps([about(letter) for letter in letters]))
    else:
        console().print(table(settings.model, letters))
    return 0


async def _check_known(redis: Redis, model: str) -> None:
    """Raise InvalidInput if there is neither a worker nor a queue of a model: most likely its name is mistyped."""
    traces = [*(keys.jobs(model, lane) for lane in LANES), keys.dead(model), keys.workers(model)]
    if not await redis.exists(*traces):
        names = ", ".join(known.name for known in await read_models(redis))
        raise InvalidInput(f"no model {model!r} is known here; there is: {names or 'none'}", param="model")


async def _act(redis: Redis, settings: DeadSettings) -> None:
    every = [letter.id for letter in await read_letters(redis, settings.model)] if settings.retry_all else []
    for letter_id in dict.fromkeys([*settings.retry, *every]):
        await retry_letter(redis, settings.model, letter_id)
        click.echo(f"queued again: {letter_id}", err=True)
    for letter_id in dict.fromkeys(settings.drop):
        if not await drop_letters(redis, settings.model, [letter_id]):
            raise InvalidInput(f"{settings.model} has no dead letter {letter_id}", param="drop")
        click.echo(f"dropped: {letter_id}", err=True)


def about(letter: Letter) -> dict[str, Any]:
    """Give what is told of a letter, for programs."""
    job = letter.job
    return {
        "id": letter.id,
        "when": datetime.fromtimestamp(letter.buried, UTC).isoformat(timespec="seconds"),
        "reason": letter.reason,
        "task": job.task if job else None,
        "lane": job.lane if job else None,
        "items": len(job.items) if job else None,
        "first": beginning(job.items[0]) if job and job.items else None,
    }


def table(model: str, letters: Sequence[Letter]) -> Table:
    """Draw the letters, one a row."""
    title = f"dead letters of {escape(model)}: {len(letters)}"
    table = plain_table(title, ("id", "when (UTC)", "task", "lane", "items", "reason", "first item"))
    table.columns[0].no_wrap = True  # it is copied
    for letter in letters:
        told = about(letter) | {"when": f"{datetime.fromtimestamp(letter.buried, UTC):%Y-%m-%d %H:%M}"}
        cells = [told[name] for name in ("id", "when", "task", "lane", "items", "reason", "first")]
        table.add_row(*("?" if cell is None else escape(str(cell)) for cell in cells))
    return table


def beginning(item: Item) -> str:
    """Give the first characters of an item, on one line; of an image or a sound its size."""
    if isinstance(item, bytes):
        return f"{len(item):,} bytes"
    text = item if isinstance(item, str) else " | ".join(map(beginning, item)) if isinstance(item, list) else str(item)
    line = "".join(letter if letter.isprintable() else " " for letter in text[: _SHOWN + 1])
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
