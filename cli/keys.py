"""infinity keys: the API keys that are managed in Redis, for all replicas at once."""

import getpass
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
import orjson
from redis.asyncio import Redis
from rich.markup import escape

from infinity_pool.broker import keyring
from infinity_pool.broker.callers import LIMITS, Caller, read_caller
from infinity_pool.broker.connection import connect
from infinity_pool.broker.keyring import Change
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.cli.console import console, plain_table
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.outages import telling_outages
from infinity_pool.cli.process import run_process

_LISTS = ("models", "tasks", "lanes")
_HEADINGS = ("name", *_LISTS, "admin", "weight", *LIMITS)
_RIGHTS = (*_LISTS, "admin")

_own = partial(option, scope="keys")


@dataclass(frozen=True, kw_only=True)
class ListSettings(CommonSettings):
    """What `infinity keys list` and `log` are told."""

    json: bool = _own("Print JSON instead of a table.", default=False)


@dataclass(frozen=True, kw_only=True)
class AddSettings(CommonSettings):
    """What `infinity keys add` is told, beside the name."""

    models: str = _own("Models it may use, joined by commas; default: all.", default="")
    tasks: str = _own("Tasks it may ask for, joined by commas; default: all.", default="")
    lanes: str = _own("Lanes it may use, joined by commas; default: both.", default="")
    admin: bool = _own("Let it see the usage of all keys.", default=False)
    requests_per_minute: int = _own("Requests in a minute; 0: any number, as in all below.", default=0, minimum=0)
    tokens_per_minute: int = _own("Tokens in a minute.", default=0, minimum=0)
    concurrent_items: int = _own("Items in hand at once.", default=0, minimum=0)
    tokens_per_day: int = _own("Tokens in a day, which begins at midnight UTC.", default=0, minimum=0)
    tokens_per_month: int = _own("Tokens in a month, UTC.", default=0, minimum=0)
    weight: float = _own("Its share of a lane beside other keys'.", default=1.0, minimum=0.001, maximum=1000)

    def caller(self, name: str) -> Caller:
        """Make what is added; raises InvalidInput, naming the field that is wrong."""
        plain = ("admin", "weight", *LIMITS)
        lists = {each: [part.strip() for part in getattr(self, each).split(",") if part.strip()] for each in _LISTS}
        return read_caller({"name": name, **lists, **{each: getattr(self, each) for each in plain}})


_name = click.Argument(["name"])


@click.group()
def command() -> None:
    """
    Add, list, change and revoke API keys.

    \b
      infinity keys add team-a --models bge-small-en-v1.5 --tokens-per-day 5000000
      infinity keys list

    What is changed here holds for all replicas within two seconds. Redis has only their hashes. Once there was a key,
    the replicas ask for one.
    """  # noqa: D301 - click's mark for lines that it should not join


def _settled(kind: type[CommonSettings], *named: click.Parameter) -> Callable[[Any], click.Command]:
    """Make a subcommand of an async function that is given Redis, the settings and the name, if there is one."""

    def make(work: Callable[..., Awaitable[None]]) -> click.Command:
        def run(**values: Any) -> None:
            settings = read(kind, values)
            names = [values[param.name] for param in named if param.name]
            sys.exit(run_process(settings, lambda: _ask(settings.redis_url, work, settings, *names)))

        made = click.Command(
            work.__name__.strip("_").replace("_", "-"),
            params=[*named, *settings_options(kind)],
            callback=run,
            help=work.__doc__,
        )
        command.add_command(made)
        return made

    return make


async def _ask(url: str, work: Callable[..., Awaitable[None]], *args: Any) -> int:
    async with connect(url) as redis:
        with telling_outages():
            await work(redis, *args)
    return 0


@_settled(AddSettings, _name)
async def _add(redis: Redis, settings: AddSettings, name: str) -> None:
    """Add a key of this name and print it, this once."""
    click.echo(await keyring.add(redis, settings.caller(name), who()))


@_settled(CommonSettings, _name)
async def _rotate(redis: Redis, settings: CommonSettings, name: str) -> None:
    """
    Give the key of this name a new value.

    It is printed, this once, and the old one ends now; rights, limits and counts stay.
    """
    click.echo(await keyring.rotate(redis, name, who()))


@_settled(CommonSettings, _name)
async def _revoke(redis: Redis, settings: CommonSettings, name: str) -> None:
    """Take the key of this name away."""
    await keyring.revoke(redis, name, who())
    click.echo(f"revoked: {name}", err=True)


@_settled(ListSettings)
async def _list(redis: Redis, settings: ListSettings) -> None:
    """Show the keys: what each may do, and the beginning of its hash."""
    known = (await keyring.look(redis, None)).callers
    rows = [{"hash": hashed[:8], **_fields(caller)} for hashed, caller in known.items()]
    _print("keys", rows, [_row(hashed, caller) for hashed, caller in known.items()], as_json=settings.json)


@_settled(ListSettings)
async def _log(redis: Redis, settings: ListSettings) -> None:
    """Show what was done with keys, when and by whom."""
    rows = [_told(change) for change in await keyring.read_log(redis)]
    short = [{**row, "when": row["when"][:16].replace("T", " "), "about": _words(row["about"])} for row in rows]
    _print("changes of keys, times in UTC", rows, short, as_json=settings.json)


def who() -> str:
    """Name the user of this host, as the log has it."""
    return f"{getpass.getuser()}@{platform.node()}"


def _fields(caller: Caller) -> dict[str, Any]:
    return {heading: getattr(caller, heading) for heading in _HEADINGS}


def _told(change: Change) -> dict[str, str]:
    when = datetime.fromtimestamp(change.when, UTC).isoformat(timespec="seconds")
    return {"when": when, "what": change.what, "name": change.name, "who": change.who, "about": change.about}


def _row(hashed: str, caller: Caller) -> dict[str, str]:
    """Give a key in words: only what it was given, so that it fits on a line."""
    told = caller.told()
    may = {name: value for name, value in told.items() if name in _RIGHTS}
    limits = {name: value for name, value in told.items() if name not in _RIGHTS}
    return {"name": caller.name, "hash": hashed[:8], "may use": _phrases(may) or "all", "limits": _phrases(limits)}


def _words(about: str) -> str:
    return _phrases(orjson.loads(about)) if about else ""


def _phrases(told: Mapping[str, Any]) -> str:
    return "; ".join(_phrase(name.replace("_", " "), value) for name, value in told.items())


def _phrase(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name
    if isinstance(value, list | tuple):
        return f"{name} {', '.join(value)}"
    return f"{value:,} {name}" if isinstance(value, int) else f"{name} {value:g}"


def _print(title: str, rows: Sequence[Any], short: Sequence[Mapping[str, str]], *, as_json: bool) -> None:
    """Print the rows as they are for programs, or in short for people."""
    if as_json:
        click.echo(orjson.dumps(rows))
        return
    if not short:
        click.echo(f"{title}: none")
        return
    table = plain_table(f"{title}: {len(rows)}", list(short[0]))
    for row in short:
        table.add_row(*(escape(cell) for cell in row.values()))
    console().print(table)
