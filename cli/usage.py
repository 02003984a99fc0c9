"""infinity usage: what was run, by key, model or day."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import groupby
from typing import Any

import click
import orjson
from rich.markup import escape
from rich.table import Table

from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.broker.usage import UNITS, Used, first_day, read_usage, today
from infinity_pool.cli.console import console, plain_table
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.outages import telling_outages
from infinity_pool.cli.process import run_process

_own = partial(option, scope="usage")


@dataclass(frozen=True, kw_only=True)
class UsageSettings(CommonSettings):
    """What `infinity usage` is told."""

    by: str = _own("What one line is of.", default="key", choices=("key", "model", "day"))
    since: str = _own("The first day, as 2026-11-30, in UTC; default: 30 days ago. 400 days are kept.", default="")
    json: bool = _own("Print JSON: each key, model, task and day.", default=False)


@click.command(params=settings_options(UsageSettings))
def command(**values: Any) -> None:
    """
    Show what was run, by key, model or day.

    A key of `-` stands for all who had none.

    \b
      infinity usage --by model --since 2026-11-01
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(UsageSettings, values)
    sys.exit(run_process(settings, lambda: _usage(settings)))


async def _usage(settings: UsageSettings) -> int:
    since = _day(settings.since)
    async with connect(settings.redis_url) as redis:
        with telling_outages():
            used = await read_usage(redis, since)
    if settings.json:
        click.echo(orjson.dumps([each._asdict() for each in used]))
    else:
        console().print(table(settings.by, since, used))
    return 0


def _day(text: str) -> date:
    try:
        return first_day(text or None)
    except ValueError:
        raise InvalidInput(f"{text!r} is no day; write it as {today()}", param="since") from None


def table(by: str, since: date, used: Sequence[Used]) -> Table:
    """Add up what was used, a line for each key, model or day."""
    table = plain_table(f"usage since {since} (UTC)", [by], UNITS)
    for name, rows in groupby(sorted(used, key=lambda one: str(getattr(one, by))), lambda one: str(getattr(one, by))):
        sums = [sum(column) for column in zip(*((one.requests, one.items, one.tokens) for one in rows), strict=True)]
        table.add_row(escape(name or "-"), *(f"{count:,}" for count in sums))
    return table
