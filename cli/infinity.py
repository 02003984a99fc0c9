"""
Infinity's options and variables that are called otherwise here, or are not there: one table.

All its others, such as --model-id and --url-prefix, are options of `infinity serve` by the same name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from infinity_pool.cli.options import SEPARATOR


class Refused(str):
    """Why a value has no place here, and what is used instead."""


class Row(NamedTuple):
    """
    An option of Infinity: `ours` is the option that it becomes, empty if it becomes none.

    `values` says what each value becomes, with "*" for all others: None is passed over, since it asks for what is so
    anyway. A value that is not in it stays as it is.
    """

    name: str
    ours: str = ""
    values: Mapping[str, str | None] = {}
    is_flag: bool = False


TABLE = (
    Row("engine", "engine", {"optimum": "onnx", "debugengine": "dummy"}),
    Row("device", "device", {"xla": Refused("use --engine tpu")}),
    Row("dtype", "dtype", {"fp8": "float8"}),
    Row("log-level", "log-level", {"trace": "debug"}),
    Row("permissive-cors", "cors-origin", {"true": "*", "false": None}, is_flag=True),
    Row("queue-size", "max-queue-items"),
    Row("max-client-batch-size", "max-items"),
    Row("home", "cache-dir"),
    Row("batch-size", "", {"*": Refused("use --batch-tokens; its default, auto, measures")}),
    Row("device-id", "", {"": None, "*": Refused("use --device, as cuda:0,cuda:1; --replicas is for each")}),
    Row("pooling-method", "", {"auto": None, "*": Refused("the model's files say it; use `pooling` of a request")}),
    Row("vector-disk-cache", "", {"false": None, "*": Refused("no vectors are kept; use map() of a client")}, True),
    Row("onnx-disable-optimize", "", {"false": None, "*": Refused("use --onnx-file, which is run as it is")}, True),
    Row("redirect-slash", "", {"": None, "*": Refused("GET / is a page that leads on; use /docs itself")}),
    Row("calibration-dataset-url", "", {"*": Refused("use infinity calibrate --texts FILE")}),
    Row("model-warmup", "", {"true": None, "*": Refused("it is always done, to measure; use --batch-tokens N")}, True),
    Row("lengths-via-tokenize", "", {"*": None}, True),  # tokens are always counted
    Row("bettertransformer", "", {"*": None}, True),  # torch has what it was for
    Row("onnx-do-not-prefer-quantized", "", {"*": None}, True),  # only --dtype int8 takes a quantised graph
    Row("anonymous-usage-stats", "", {"*": None}),  # there are none
    Row("disable-optimum", "", {"*": None}),
)

_ROWS = {row.name: row for row in TABLE}
_TRUE = ("true", "t", "1", "yes", "y")


def arguments(given: Sequence[str]) -> list[str]:
    """Give a command line with our options in place of Infinity's; raises click.UsageError for what has no place."""
    rest = iter(given)
    return [ours for argument in rest for ours in _argument(argument, rest)]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables to set for Infinity's that are set; raises click.UsageError for what has no place."""
    made: dict[str, str] = {}
    for row in TABLE:
        value = environment.get(variable(row.name))
        if value is None:
            continue
        values = [_ours(row, _flag(one) if row.is_flag else one, variable(row.name)) for one in _several(value)]
        kept = [one for one in values if one is not None]
        if row.name == row.ours or (kept and row.ours and variable(row.ours) not in environment):
            made[variable(row.ours)] = SEPARATOR.join(kept)
    return made


def as_given(option: click.Parameter | None, given: Sequence[str], made: Mapping[str, str]) -> str:
    """
    Say by which option or variable of Infinity's one of ours was given, empty if by none.

    `made` are the variables that were set for Infinity's.
    """
    flags = [argument.partition("=")[0] for argument in given]
    for row in TABLE:
        if option is not None and row.name != row.ours and f"--{row.ours}" in option.opts:
            if f"--{row.name}" in flags:
                return f"'--{row.name}'"
            if variable(row.ours) in made and f"--{row.ours}" not in flags:
                return f"'{variable(row.name)}'"
    return ""


def variable(name: str) -> str:
    """Give the variable of an option."""
    return f"INFINITY_{name.replace('-', '_').upper()}"


def _argument(argument: str, rest: Iterator[str]) -> Iterable[str]:
    """Give what one argument becomes; its value may be the next."""
    if not argument.startswith("--"):
        return [argument]
    name, equals, value = argument[2:].partition("=")
    row = _ROWS.get(name) or _ROWS.get(name.removeprefix("no-"))
    if row is None:
        return [argument]
    if row.is_flag:
        value = "true" if row.name == name else "false"
    elif not equals:
        value = next(rest, "")
    ours = _ours(row, value, f"--{name}")
    return [] if ours is None or not row.ours else [f"--{row.ours}", ours]


def _ours(row: Row, value: str, told: str) -> str | None:
    """Give what a value becomes, None if nothing."""
    ours = row.values.get(value, row.values.get("*", value))
    if isinstance(ours, Refused):
        raise click.UsageError(f"{told}{f' {value}' if value and not row.is_flag else ''} is not served: {ours}")
    return ours


def _flag(value: str) -> str:
    return "true" if value.strip().lower() in _TRUE else "false"


def _several(value: str) -> list[str]:
    return value.removesuffix(SEPARATOR).split(SEPARATOR)
