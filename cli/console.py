"""Where tables are printed."""

import sys

from rich.console import Console

_WIDTH = 160  # columns, where there is no terminal to ask


def console() -> Console:
    """Give stdout as rich sees it: as wide as the terminal, or wide enough to lose nothing in a file or pipe."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)
