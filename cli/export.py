"""infinity export: a folder that ONNX Runtime serves without torch, made of a model once."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from infinity_pool.broker.settings import option
from infinity_pool.cli.once import run_once, show_stage
from infinity_pool.cli.options import read, settings_options
from infinity_pool.workers.settings import ModelSettings

_own = partial(option, scope="export")
_OF_SERVING = (
    "served_model_name",
    "engine",
    "device",
    "dtype",
    "embedding_dtype",
    "replicas",
    "batch_tokens",
    "preprocess_workers",
    "allow_mixed",
    "device_share",
    "max_running",
    "memory_limit",
    "compile",
)


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ModelSettings):
    """What `infinity export` is told."""

    out: str = _own("The folder to write, which must be empty or not there.")
    optimize: str = _own(
        "O1: general; O2: operators fused; O3: and GELU approximated; O4: and half precision, for GPUs.",
        default="none",
        choices=("none", "O1", "O2", "O3", "O4"),
    )
    quantize: str = _own(
        "int8, for one kind of processor.", default="none", choices=("none", "arm64", "avx2", "avx512_vnni")
    )


@click.command(params=settings_options(ExportSettings, without=_OF_SERVING))
def command(**values: Any) -> None:
    """
    Write a folder that is served at once, and without torch.

    \b
      infinity export --model BAAI/bge-small-en-v1.5 --out ./bge --optimize O2
      infinity serve --model ./bge
    """  # noqa: D301 - click's mark for lines that it should not join
    settings = read(ExportSettings, values)
    click.echo(run_once(settings, _export))


def _export(settings: ExportSettings) -> str:
    from infinity_pool.workers.models.export import export_model  # here: it brings onnxruntime along

    out = Path(settings.out).expanduser().absolute()
    level, processor = ("" if each == "none" else each for each in (settings.optimize, settings.quantize))
    made = export_model(settings, out, level, processor, show_stage)
    why = f" ({made.why})" if made.why else ""
    return f"{out}: {made.dtype}, made by {made.maker}{why}; its cosine to the model is at least {made.cosine:.6f}"
