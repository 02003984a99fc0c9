"""infinity check: what a model is, and what can run it here, without serving it."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from infinity_pool.cli.console import console, plain_table
from infinity_pool.cli.once import run_once
from infinity_pool.cli.options import read, settings_options
from infinity_pool.workers.device.sizes import shown
from infinity_pool.workers.models.check import About, Trial, combinations, look, trials
from infinity_pool.workers.settings import ModelSettings

_OF_SERVING = (
    "served_model_name",
    "embedding_dtype",
    "replicas",
    "device_share",
    "max_running",
    "batch_tokens",
    "preprocess_workers",
    "allow_mixed",
)


@click.command(params=settings_options(ModelSettings, without=_OF_SERVING))
def command(**values: Any) -> None:
    """
    Say what a model is, and what can run it here.

    Each engine, device and number format is tried on it, and nothing is served. That takes a minute or so, and less
    where --engine, --device or --dtype names one.

    \b
      infinity check --model BAAI/bge-small-en-v1.5
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(ModelSettings, values)
    sys.exit(0 if run_once(settings, _check) else 1)


def _check(settings: ModelSettings) -> bool:
    with Console(stderr=True).status("finding the model") as status:
        about = look(settings, _shown(status, ""))
        found: list[Trial] = []
        tasks: tuple[str, ...] = ()
        modalities: tuple[str, ...] = ()
        count = len(combinations(settings))
        for trial, its_tasks, its_modalities in trials(settings, _shown(status, f"of {count}: ", found)):
            found.append(trial)
            tasks, modalities = its_tasks or tasks, its_modalities or modalities
    console().print(_facts(settings, about, tasks, modalities))
    console().print(table(found))
    for line in refusals(found):
        console().print(escape(line))
    return any(not trial.refused for trial in found)


def _shown(status: Status, lead: str, done: Sequence[Trial] = ()) -> Any:
    def show(stage: str, part: float | None) -> None:
        place = f"{len(done) + 1} {lead}" if lead else ""
        status.update(escape(f"{place}{stage}" + (f" {part:.0%}" if part is not None else "")))

    return show


def _facts(settings: ModelSettings, about: About, tasks: Sequence[str], modalities: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in (
        ("model", settings.model),
        ("family", about.family),
        ("tasks", ", ".join(tasks) or "unknown, as nothing could run it"),
        ("takes", ", ".join(modalities)),
        ("licence", about.licence),
        ("files", shown(about.size)),
    ):
        grid.add_row(name, escape(value))
    return grid


def table(found: Sequence[Trial]) -> Table:
    """Draw the trials, one a row."""
    table = plain_table("", ("engine", "device", "dtype", "runs"), ("to torch float32", "time", "memory"))
    for one in found:
        figures = ("no", "", "", "") if one.refused else ("yes", *_figures(one))
        table.add_row(one.engine, one.device, one.dtype, *figures)
    return table


def refusals(found: Sequence[Trial]) -> list[str]:
    """Give each reason once, with what it kept from running; they are sentences, for which a column is too narrow."""
    by_reason: dict[str, list[Trial]] = {}
    for one in found:
        if one.refused:
            by_reason.setdefault(one.refused, []).append(one)
    return [f"{_named(kept)}: {reason}" for reason, kept in by_reason.items()]


def _named(kept: Sequence[Trial]) -> str:
    return "; ".join(dict.fromkeys(f"{one.engine} {one.device} {one.dtype}".removesuffix(" any any") for one in kept))


def _figures(trial: Trial) -> tuple[str, str, str]:
    cosine = "not run" if math.isnan(trial.cosine) else f"{trial.cosine:.6f}"
    return cosine, f"{1e3 * trial.seconds:.1f} ms", shown(trial.memory)
