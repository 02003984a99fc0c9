"""infinity bench: puts load on one server, or on two in turn, and says how they did."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import orjson
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from infinity_pool.api.network.tls import client_context
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.cli.bench.load import Amount, Outcome, Target, run
from infinity_pool.cli.bench.models import only_model
from infinity_pool.cli.bench.report import Bare, Report, Row
from infinity_pool.cli.bench.scenarios import SCENARIOS, Clients, Scenario
from infinity_pool.cli.bench.settings import BenchSettings
from infinity_pool.cli.console import console
from infinity_pool.cli.options import read, settings_options

_EPILOG = "\b\nScenarios:\n" + "\n".join(f"  {name:8} {scenario.about}" for name, scenario in SCENARIOS.items())


@click.command(params=settings_options(BenchSettings), epilog=_EPILOG)
def command(**values: Any) -> None:
    """
    Put load on a server and measure it.

    With --compare, each scenario is run on two servers in turn; with --raw, the bare model is run too, with no server.

    \b
      infinity bench --url http://127.0.0.1:7997 --duration 10
      infinity bench --compare http://127.0.0.1:8080/v1 --scenario s2,s3
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(BenchSettings, values)
    scenarios = _scenarios(settings.scenario)
    try:
        report = uvloop.run(_bench(settings, scenarios))
    except (OSError, InvalidInput) as error:
        raise click.ClickException(str(error)) from error
    console().print(report.table())
    for line in report.errors():
        click.echo(line, err=True)
    if settings.json:
        Path(settings.json).write_bytes(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2))
    sys.exit(1 if any(report.errors()) else 0)


async def _bench(settings: BenchSettings, scenarios: dict[str, Scenario]) -> Report:
    targets = _targets(settings)
    report = Report([urlsplit(target.url).netloc for target in targets])
    with _progress() as progress:
        bare = await _bare(settings, progress) if settings.raw else {}
        for name, scenario in scenarios.items():
            outcomes = [await _run(settings, name, scenario, target, progress) for target in targets]
            report.rows.extend(_rows(name, scenario, outcomes, bare))
    return report


async def _run(settings: BenchSettings, name: str, scenario: Scenario, target: Target, progress: Progress) -> Outcome:
    amount = Amount(settings.requests or scenario.requests, settings.duration or None, settings.seed)
    row = progress.add_task(f"{name} {target.url}", total=1.0)
    outcome = await run(target, scenario, amount, lambda part: progress.update(row, completed=part))
    progress.update(row, completed=1.0)
    return outcome


def _rows(name: str, scenario: Scenario, outcomes: Sequence[Outcome], bare: dict[str, float]) -> Iterator[Row]:
    """Give a row for the clients in front and, where there are others behind, one for them."""
    front = [outcome.front for outcome in outcomes]
    behind = [outcome.behind for outcome in outcomes if outcome.behind]
    if scenario.behind and behind:
        yield Row(name, scenario.about, front)
        yield Row(f"{name} behind", scenario.about, behind, _bare_row(scenario.behind, bare))
    else:
        yield Row(name, scenario.about, front, _bare_row(scenario.clients, bare))


def _bare_row(clients: Clients, bare: dict[str, float]) -> Bare | None:
    """Give what to compare with: a single client waits for single texts, many clients make batches."""
    if not bare:
        return None
    alone = clients.count == clients.items == 1
    return Bare(p50=bare["single_ms"]) if alone else Bare(bare[clients.lengths])


def _scenarios(names: str) -> dict[str, Scenario]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in SCENARIOS:
            raise click.UsageError(f"--scenario {name!r} is none of {', '.join(SCENARIOS)}")
    return {name: SCENARIOS[name] for name in wanted}


def _targets(settings: BenchSettings) -> list[Target]:
    """Give the servers, each with a model: the one that was named, or else the only one that it serves."""
    url, key = _base("--url", settings.url) + settings.prefix, settings.api_key
    trust = client_context(settings.ca_file) if settings.ca_file else None
    first = Target(url, settings.model or only_model(url, key, trust=trust), key, trust)
    if not settings.compare:
        return [first]
    url, key = _base("--compare", settings.compare), settings.compare_api_key or key
    model = settings.compare_model or only_model(url, key, usual=first.model, trust=trust)
    return [first, Target(url, model, key, trust)]


def _base(option: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is no number
        usable = False
    if not usable:
        raise click.UsageError(f"{option} {url!r} is no URL of a server, such as http://127.0.0.1:7997")
    return url.rstrip("/")


async def _bare(settings: BenchSettings, progress: Progress) -> dict[str, float]:
    """Run the bare model in a process of its own, while no server has anything to do."""
    row = progress.add_task(f"bare {settings.raw}", total=None)
    command = [sys.executable, "-m", "infinity_pool.cli.bench.raw", "--model", settings.raw]
    process = await asyncio.create_subprocess_exec(
        *command, "--engine", settings.raw_engine, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise click.ClickException(f"the bare model of {settings.raw} ended with exit code {process.returncode}")
    progress.update(row, total=1.0, completed=1.0)
    figures: dict[str, float] = json.loads(output)
    return figures


def _progress() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
