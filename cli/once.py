"""How a command runs that does one thing with a model and ends: its answer, or one line on stderr."""

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from infinity_pool.broker.errors import InfinityError
from infinity_pool.cli.logs import start_logging
from infinity_pool.workers.settings import ModelSettings

Settings = TypeVar("Settings", bound=ModelSettings)
Answer = TypeVar("Answer")


def run_once(settings: Settings, work: Callable[[Settings], Answer]) -> Answer:
    """Give what `work` answers; ends the process with 1 after an error that we foresaw."""
    start_logging("error", "text")
    try:
        settings.check()
        return work(settings)
    except InfinityError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def show_stage(stage: str, part: float | None) -> None:
    """Say what is being done, and the part of it that is done, a line each."""
    click.echo(stage if part is None else f"{stage} {part:.0%}", err=True)
