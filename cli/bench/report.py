"""Shows what a bench run has measured: as a table, and as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from infinity_pool.cli.bench.measured import Measured
from infinity_pool.cli.console import plain_table

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Row:
    """What one kind of clients saw, on each server in turn, and what the bare model does with the same texts."""

    name: str
    about: str
    servers: Sequence[Measured]
    bare: "Bare | None" = None


@dataclass(frozen=True)
class Bare:
    """A model run by itself: texts per second in sorted batches, or the median time of a single one, in ms."""

    items_per_second: float = math.nan
    p50: float = math.nan

    def __str__(self) -> str:
        return f"{_short(self.items_per_second)} items/s" if math.isnan(self.p50) else f"{_short(self.p50)} ms"


@dataclass(frozen=True)
class Report:
    """A whole run: the servers by what they are called, and a row for each kind of clients."""

    servers: Sequence[str]
    rows: list[Row] = field(default_factory=list)

    def table(self) -> Table:
        """Draw the table; ratios are of the first server to the second, and to the bare model."""
        numbers = ("req/s", "items/s", *(f"p{percent} ms" for percent in PERCENTILES), "errors")
        table = plain_table("infinity bench", ("scenario", "server"), numbers)
        for row in self.rows:
            for name, measured in zip(self.servers, row.servers, strict=True):
                table.add_row(row.name, name, *_cells(measured))
            for against, ratios in _ratios(row).items():
                table.add_row("", f"ratio to {against}", *ratios, style="bold")
            table.add_section()
        return table

    def errors(self) -> Iterator[str]:
        """Tell each kind of error, and how often it came."""
        for row in self.rows:
            for name, measured in zip(self.servers, row.servers, strict=True):
                for error, count in measured.errors.most_common(3):
                    yield f"{row.name}, {name}: {count} x {error}"

    def to_json(self) -> list[dict[str, Any]]:
        """Give one object for each row and server."""
        return [
            {"scenario": row.name, "about": row.about, "server": name, **_numbers(measured)}
            | ({"bare": str(row.bare)} if row.bare else {})
            for row in self.rows
            for name, measured in zip(self.servers, row.servers, strict=True)
        ]


def _cells(measured: Measured) -> list[str]:
    numbers = [measured.requests_per_second, measured.items_per_second, *map(measured.percentile, PERCENTILES)]
    return [*map(_short, numbers), str(measured.errors.total())]


def _numbers(measured: Measured) -> dict[str, Any]:
    return {
        "ok": len(measured.latencies),
        "errors": dict(measured.errors),
        "seconds": round(measured.seconds, 3),
        "req_per_s": round(measured.requests_per_second, 1),
        "items_per_s": round(measured.items_per_second, 1),
        **{f"p{percent}_ms": round(measured.percentile(percent), 3) for percent in PERCENTILES},
    }


def _ratios(row: Row) -> Mapping[str, list[str]]:
    """Give the rows of ratios, aligned with the columns of numbers; above 1 is more, so for a latency it is worse."""
    first, *others = row.servers
    ratios = {}
    for other in others:
        pairs = [
            (first.requests_per_second, other.requests_per_second),
            (first.items_per_second, other.items_per_second),
        ]
        pairs += [(first.percentile(percent), other.percentile(percent)) for percent in PERCENTILES]
        ratios["the other"] = [_ratio(mine, theirs) for mine, theirs in pairs]
    if row.bare:
        items = _ratio(first.items_per_second, row.bare.items_per_second)
        ratios[f"bare ({row.bare})"] = [
            "",
            items,
            _ratio(first.percentile(50), row.bare.p50),
        ]
    return ratios


def _ratio(mine: float, theirs: float) -> str:
    known = theirs and not math.isnan(mine) and not math.isnan(theirs)
    return f"{mine / theirs:.2f}x" if known else ""


def _short(number: float) -> str:
    return "" if math.isnan(number) else f"{number:,.0f}" if number >= 100 else f"{number:.2f}"
