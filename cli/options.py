"""Turns declared settings into flags and `INFINITY_…` variables, and back into the environment of a child process."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import MISSING, Field
from typing import Any, TypeVar, get_type_hints

import click

from infinity_pool.broker.settings import Option, options_of
from infinity_pool.workers.models.choices import ENGINES, FAMILIES

Settings = TypeVar("Settings")

SEPARATOR = ";"
"""What stands between the values of several models in one variable."""

_FOLDERS = {"@engines": ["auto", *ENGINES], "@families": ["auto", *FAMILIES]}

_METAVARS = {int: "N", float: "NUMBER"}  # in place of click's INTEGER RANGE; the range is told beside

_SEVERAL = tuple[str, ...]  # the type of a setting that may be given several times, whether or not there are models


class SettingOption(click.Option):
    """A declared setting as a flag and a variable; a repeated one takes values joined by `;` from its variable."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Read the variable; one that Kubernetes sets for a service, `tcp://…` in place of a number, is passed over."""
        value = super().resolve_envvar_value(ctx)
        if value is None or not (value.startswith("tcp://") and _is_number(self.type)):
            return value
        _warn_once(ctx, f"{self.shown_variable()}={value} is a service variable of Kubernetes, not ours: ignored")
        return None

    def shown_variable(self) -> str:
        """Give the variable that has the option's own name."""
        return self.envvar if isinstance(self.envvar, str) else next(iter(self.envvar or ()), "")

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Split the values of a repeated option."""
        if not self.multiple:
            return super().value_from_envvar(ctx)
        value = self.resolve_envvar_value(ctx)
        return None if value is None else tuple(value.removesuffix(SEPARATOR).split(SEPARATOR))


def settings_options(
    settings: type[Any], *, repeated: Container[str] = (), without: Container[str] = ()
) -> list[click.Parameter]:
    """Give the command-line options of a settings class; those `repeated` may be given once for each model."""
    types = get_type_hints(settings)
    return [
        _option(field, option, types[name], name in repeated)
        for name, (field, option) in options_of(settings).items()
        if name not in without
    ]


def read(settings: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Make settings of what click parsed."""
    return settings(**{name: values[name] for name in options_of(settings) if name in values})


def read_each(settings: type[Settings], values: Mapping[str, Sequence[Any]], *, key: str) -> list[Settings]:
    """
    Make one settings object for each value of the option `key`.

    Of the other options, one value is for all and as many as there are of `key` go by position; raises
    click.UsageError, naming the option and the counts, for any other number.
    """
    count = len(values[key])
    columns = {name: _column(name, values[name], key, count) for name in options_of(settings) if name in values}
    return [settings(**{name: column[i] for name, column in columns.items()}) for i in range(count)]


def environment(settings: object) -> dict[str, str]:
    """Render settings as the variables from which a child process reads the same ones back."""
    declared = options_of(type(settings)).items()
    return {variable(name, option): _text(getattr(settings, name)) for name, (_, option) in declared}


def flag(name: str) -> str:
    """Give the flag of a setting."""
    return "--" + name.replace("_", "-")


def variable(name: str, option: Option) -> str:
    """Give the environment variable of a setting, or of another flag of the same setting."""
    scope = f"{option.scope}_" if option.scope else ""
    return f"INFINITY_{scope}{name.removeprefix('--').replace('-', '_')}".upper()


def choices_of(option: Option) -> list[str]:
    """Give the values an option may have; `@engines` stands for auto and the files in that folder."""
    return [each for choice in option.choices for each in _FOLDERS.get(choice, [choice])]


def _option(field: Field[Any], option: Option, kind: type[Any], repeated: bool) -> SettingOption:
    extra: dict[str, Any] = {"required": True}
    if field.default is not MISSING:
        shown = field.default not in ("", ()) and field.default is not False
        extra = {"default": (field.default,) if repeated else field.default, "show_default": shown}
    return SettingOption(
        [field.name, *_flags(field.name, option, kind)],
        type=_click_type(option, kind),
        multiple=repeated or kind == _SEVERAL,
        envvar=[variable(each, option) for each in (field.name, *option.aliases)],
        show_envvar=True,
        help=option.help,
        metavar=_METAVARS.get(kind),
        **extra,
    )


def _flags(name: str, option: Option, kind: type[Any]) -> list[str]:
    if kind is bool:
        return [f"{flag(name)}/--no-{name.replace('_', '-')}"]
    return [flag(name), *option.aliases]


def _click_type(option: Option, kind: type[Any]) -> "click.ParamType[Any]":
    if option.choices:
        return click.Choice(choices_of(option))
    if kind is int:
        low, high = (None if bound is None else int(bound) for bound in (option.minimum, option.maximum))
        return click.IntRange(low, high) if (low, high) != (None, None) else click.INT
    if kind is float:
        return Finite(option.minimum, option.maximum)
    return click.BOOL if kind is bool else click.STRING


class Finite(click.FloatRange):
    """A number within bounds, which NaN and infinity never are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number; fails as click's own types do."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def _is_number(kind: "click.ParamType[Any]") -> bool:
    return isinstance(kind, (type(click.INT), click.FloatRange))


def _column(name: str, values: Sequence[Any], key: str, count: int) -> Sequence[Any]:
    if len(values) == count:
        return values
    if len(values) == 1:
        return list(values) * count
    raise click.UsageError(
        f"{flag(name)} was given {len(values)} times, but {flag(key)} {count} times: "
        f"give it once for all models, or once for each"
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return SEPARATOR.join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warn_once(ctx: click.Context, message: str) -> None:
    said = ctx.meta.setdefault(__name__, set())
    if message not in said:
        said.add(message)
        click.echo(f"warning: {message}", err=True)
