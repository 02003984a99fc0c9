"""infinity calibrate: the ranges by which a model's vectors are answered as int8 and uint8."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from infinity_pool.broker.settings import option
from infinity_pool.cli.once import run_once, show_stage
from infinity_pool.cli.options import read, settings_options
from infinity_pool.workers.settings import ModelSettings

_OF_SERVING = (
    "served_model_name",
    "embedding_dtype",
    "replicas",
    "batch_tokens",
    "preprocess_workers",
    "allow_mixed",
    "device_share",
    "max_running",
)


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(ModelSettings):
    """What `infinity calibrate` is told."""

    texts: str = option("A file with a text on each line, like those that will be embedded.", scope="calibrate")


@click.command(params=settings_options(CalibrateSettings, without=_OF_SERVING))
def command(**values: Any) -> None:
    """
    Measure the ranges that int8 and uint8 vectors need.

    \b
      infinity calibrate --model BAAI/bge-small-en-v1.5 --texts texts.txt
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(CalibrateSettings, values)
    click.echo(run_once(settings, _calibrate))


def _calibrate(settings: CalibrateSettings) -> str:
    from infinity_pool.workers.models.calibrate import calibrate  # here: it brings numpy along

    made = calibrate(settings, Path(settings.texts).expanduser().absolute(), show_stage)
    return f"{made.path}: ranges of {made.width} dimensions, of {made.texts} texts"
