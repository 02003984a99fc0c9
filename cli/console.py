"""Where tables are printed, and how they look."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_WIDTH = 160  # columns, where there is no terminal to ask


def console() -> Console:
    """Give stdout as rich sees it: as wide as the terminal, or wide enough to lose nothing in a file or pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def plain_table(title: str, words: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Make a table of columns of words, which fold where there is no room, and then of numbers."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in words:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, overflow="fold", justify="right")
    return table
