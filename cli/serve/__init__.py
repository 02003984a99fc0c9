"""infinity serve: the queue, the workers and the API of one machine, under one supervisor."""

import os
import sys
from collections import Counter
from typing import Any

import click

from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.settings import options_of
from infinity_pool.cli import infinity
from infinity_pool.cli.options import read, read_each, settings_options
from infinity_pool.cli.process import run_process
from infinity_pool.cli.sections import SectionedCommand
from infinity_pool.cli.serve.settings import ServeSettings
from infinity_pool.workers.settings import ModelSettings

_SECTIONS = {
    "Of each model; with several, given once for all, or once for each --model": options_of(ModelSettings),
    "HTTP": {*options_of(HttpSettings), "api_processes"},
    "Processes, queue and log": options_of(ServeSettings),
}
_EPILOG = """
Every option can be given as its environment variable instead; a flag wins. The values of several models are joined by
';' there. HF_TOKEN is passed on to the model hub.

Requests of a few items, and of one query with its documents up to half a second of work, go on the online lane, which
workers serve first; larger ones go on the bulk lane.
"""


class Serve(SectionedCommand):
    """The command, which takes Infinity's options and variables too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ours in place of Infinity's."""
        made = infinity.variables(os.environ)
        os.environ.update(made)
        given = [*args]
        try:
            return super().parse_args(ctx, infinity.arguments(args))
        except click.BadParameter as error:
            error.param_hint = infinity.as_given(error.param, given, made) or error.param_hint
            raise


@click.command(
    cls=Serve,
    sections=_SECTIONS,
    params=[
        *settings_options(ModelSettings, repeated=options_of(ModelSettings)),
        *settings_options(ServeSettings),
    ],
    epilog=_EPILOG,
)
def command(**values: Any) -> None:
    """
    Serve models on this machine, over HTTP.

    It starts one supervised worker per model, device and replica, the API, and a private server between them, and
    starts again whatever dies. When all is ready it prints the address and a first request to try.

    \b
      infinity serve --model BAAI/bge-small-en-v1.5
      infinity serve --model ./first --model ./second --port 8000
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(ServeSettings, values)
    models = read_each(ModelSettings, values, key="model")
    _check_names(models)
    from infinity_pool.cli.serve.run import serve  # late: --help needs none of it

    sys.exit(run_process(settings, lambda: serve(settings, models)))


def _check_names(models: list[ModelSettings]) -> None:
    for model in models:
        try:
            model.check()
        except InvalidInput as error:
            raise click.UsageError(str(error)) from error
    for name, count in Counter(model.name for model in models).items():
        if count > 1:
            raise click.UsageError(
                f"{count} models would be served as {name!r}: tell them apart by --served-model-name"
            )
