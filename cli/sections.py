"""Help for a command with many options: under headings, what most people need first."""

from collections.abc import Container, Mapping
from typing import Any

import click


class SectionedCommand(click.Command):
    """A command that shows its options by sections; what is in none of them comes last, under Options."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Container[str]], **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        left = {param.name or "": param for param in self.get_params(ctx)}
        for title, names in self._sections.items():
            _write(title, [left.pop(name) for name in list(left) if name in names], ctx, formatter)
        _write("Options", list(left.values()), ctx, formatter)


def _write(title: str, params: list[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    records = [record for param in params if (record := param.get_help_record(ctx))]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
