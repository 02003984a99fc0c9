"""infinity serve: the queue, the workers and the API of one machine, under one supervisor."""

import sys
from collections import Counter
from typing import Any

import click

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.settings import options_of
from infinity_pool.cli.options import read, read_each, settings_options
from infinity_pool.cli.process import run_process
from infinity_pool.cli.serve.settings import ServeSettings
from infinity_pool.workers.settings import ModelSettings

_EPILOG = (
    "Options of a model may be repeated, once for each --model; a variable then holds values joined by ';'. "
    "HF_TOKEN is passed on to the model hub."
)


@click.command(
    params=[
        *settings_options(ModelSettings, repeated=options_of(ModelSettings)),
        *settings_options(ServeSettings),
    ],
    epilog=_EPILOG,
)
def command(**values: Any) -> None:
    """Serve models on this machine: one supervised worker per model, device and replica, and the HTTP API."""
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
