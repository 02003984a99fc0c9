"""The commands, one for each task, with the same options but for a few."""

import importlib
import sys
from typing import Any

import click
from click.core import ParameterSource

from infinity_pool.broker.settings import CommonSettings, options_of
from infinity_pool.cli.backfill.settings import BackfillSettings
from infinity_pool.cli.options import flag, read, settings_options
from infinity_pool.cli.process import run_process
from infinity_pool.cli.sections import SectionedCommand
from infinity_pool.workers.settings import ModelSettings

EXIT_REFUSED = 2
"""The exit code for what will never do, as click has it for options."""

_WITHOUT = (
    *("served_model_name", "max_image_pixels", "device_share", "max_running", "memory_limit", "allow_mixed"),
    *("compile", "onnx_file"),
)
_ALWAYS = ("model", "embedding_dtype")  # of those of a model, what is also for one that others serve
_SERVERS = ("http://", "https://")

_EPILOG = """
Exit codes: 0, all documents are in the output; 3, all but those in OUT.failures.jsonl; 1, it broke off, and the same
command goes on; 2, what was asked for will not do; 130, it was interrupted, and the same command goes on.
"""


def make(name: str, help: str) -> click.Command:
    """Make the command of a task."""
    task = importlib.import_module(f"infinity_pool.cli.backfill.tasks.{name}")

    @click.pass_context
    def run(ctx: click.Context, /, inputs: tuple[str, ...], **values: Any) -> None:
        settings = read(task.Settings, values)
        _check(ctx, settings)
        sys.exit(run_process(_common(settings), lambda: _run(task, settings, inputs), refused=EXIT_REFUSED))

    sections = {
        "The rows and what is made of them": options_of(task.Settings).keys() - options_of(BackfillSettings).keys(),
        "The backfill": options_of(BackfillSettings).keys() - options_of(ModelSettings).keys(),
        "The model, where it is run here": options_of(ModelSettings),
    }
    argument = click.Argument(["inputs"], nargs=-1, required=True, metavar="INPUT...")
    without = _WITHOUT if "embedding_dtype" in task.OPTIONS else (*_WITHOUT, "embedding_dtype")
    params = [argument, *settings_options(task.Settings, without=without)]
    return SectionedCommand(name, callback=run, params=params, help=help, epilog=_EPILOG, sections=sections)


def _check(ctx: click.Context, settings: BackfillSettings) -> None:
    """Refuse options that would say nothing."""
    _check_place(ctx, settings)
    if getattr(settings, "top_n", 0) and not getattr(settings, "documents_field", ""):
        raise click.UsageError("--top-n is of a list of documents, which --documents-field names")
    if settings.url or settings.redis_url:
        for name in options_of(ModelSettings):
            if name not in _ALWAYS and name not in _WITHOUT and _given(ctx, name):
                raise click.UsageError(f"{flag(name)} is for a model that is run here, not for one that others serve")


def _check_place(ctx: click.Context, settings: BackfillSettings) -> None:
    """Refuse what does not say where the model is."""
    if settings.url and settings.redis_url and _given(ctx, "url") and _given(ctx, "redis_url"):
        raise click.UsageError("--url and --redis-url name two places: give one")
    if settings.url and not settings.url.startswith(_SERVERS):
        raise click.UsageError(f"--url is a server's, http:// or https://, not {settings.url}")
    if settings.redis_url.startswith(_SERVERS):
        raise click.UsageError(f"--redis-url is a Redis, not a server: --url {settings.redis_url}")
    if not settings.url and _given(ctx, "api_key"):
        raise click.UsageError("--api-key is for a server, which --url names")


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE


def _common(settings: BackfillSettings) -> CommonSettings:
    return CommonSettings(log_level=settings.log_level, log_format=settings.log_format)


async def _run(task: Any, settings: BackfillSettings, inputs: tuple[str, ...]) -> int:
    try:
        from infinity_pool.cli.backfill.run import backfill  # late: it brings pyarrow and fsspec along
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: pip install 'infinity-pool[backfill]'") from error
    return await backfill(task, settings, inputs)
