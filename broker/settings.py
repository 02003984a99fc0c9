"""
How a setting is declared: once, as a field of a frozen dataclass.

The command line turns each field into a flag, an `INFINITY_…` environment variable, a default, a type and a help text.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """What the command line has to know about a field beyond its name, type and default."""

    help: str
    choices: Sequence[str] = ()
    aliases: Sequence[str] = ()
    secret: bool = False
    minimum: float | None = None
    maximum: float | None = None
    scope: str = ""
    """The command whose own this option is: its variable is `INFINITY_SCOPE_…`; empty for what several share."""


def option(
    help: str,
    *,
    default: Any = MISSING,
    choices: Sequence[str] = (),
    aliases: Sequence[str] = (),
    secret: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    scope: str = "",
) -> Any:
    """Declare one option; without a default it is required."""
    meta = Option(help, tuple(choices), tuple(aliases), secret, minimum, maximum, scope)
    return field(default=default, repr=not secret, metadata={"option": meta})


def options_of(settings: type[Any]) -> dict[str, tuple[dataclasses.Field[Any], Option]]:
    """Give a settings class's options, by field name, in the order they were declared."""
    return {
        item.name: (item, item.metadata["option"]) for item in dataclasses.fields(settings) if "option" in item.metadata
    }


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """What every process of the project is told."""

    redis_url: str = option(
        "Redis to use: redis://, rediss:// or unix://.",
        default="redis://127.0.0.1:6379/0",
        secret=True,
    )
    log_level: str = option(
        "How much to log.",
        default="info",
        choices=("critical", "error", "warning", "info", "debug"),
    )
    log_format: str = option("How a log line looks.", default="text", choices=("text", "json"))
