"""A job in a worker's hands, from the take to the answer."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.consumer import Delivery
from infinity_pool.broker.messages import Array, Job, Times
from infinity_pool.workers.interface import Head, Rows
from infinity_pool.workers.loop.batching import Budget


@dataclass(slots=True, eq=False)
class Held:
    """
    A job, and what has come of it so far.

    `settled` says that it is answered, failed or dropped: whatever of it still is in line is not run. `trial` is the
    recording of an orphan's start, and says whether it may be started. `prepared` and `ran` are the seconds of the part
    of a take it was prepared in, and of the batches it was run in.
    """

    delivery: Delivery
    job: Job
    head: Head | None = None
    tokens: int = 0
    truncated: int = 0
    prepared: float = 0.0
    ran: float = 0.0
    settled: bool = False
    trial: asyncio.Task[bool] | None = None
    missing: int = field(init=False)
    outputs: Any = None

    def __post_init__(self) -> None:
        self.missing = len(self.job.items)

    def times(self) -> Times:
        """Say what its time went into until now; whatever is neither preparing nor running is waiting."""
        waited = time.monotonic() - self.delivery.queued - self.prepared - self.ran
        return Times(1000 * max(0.0, waited), 1000 * self.prepared, 1000 * self.ran)

    def put(self, index: int, output: Any, alike: bool) -> bool:
        """Fill in one item's output, an array like those of the others if they are `alike`; true for the last."""
        if self.outputs is None:
            one = self.missing == 1 and alike
            self.outputs = output[None] if one else _room(self.missing, output if alike else None)
        if not (alike and self.missing == len(self.outputs) == 1):
            self.outputs[index] = output
        self.missing -= 1
        return self.missing == 0


def _room(items: int, like: Array | None) -> Array | list[Any]:
    return [None] * items if like is None else np.empty((items, *like.shape), like.dtype)


class Unit(NamedTuple):
    """One item of a held job, and where its rows are."""

    held: Held
    item: int
    rows: Rows
    place: int


def gather(units: list[Unit]) -> tuple[list[Unit], list[Rows]]:
    """Pick a batch's rows out of the sets they were prepared in, one pick a set; gives the units in the same order."""
    sets: dict[int, list[Unit]] = {}
    for unit in units:
        sets.setdefault(id(unit.rows), []).append(unit)
    ordered = [unit for group in sets.values() for unit in group]
    return ordered, [group[0].rows.select([unit.place for unit in group]) for group in sets.values()]


class Size(NamedTuple):
    """A batch's tokens: its items' own, and those that go through the network, with padding if there is any."""

    real: int
    run: int


def size_of(units: list[Unit], budget: Budget) -> Size:
    """Give the tokens of a batch that is run under a budget."""
    lengths = [int(unit.rows.lengths[unit.place]) for unit in units]
    return Size(sum(lengths), budget.cost(len(lengths), sum(lengths), max(lengths)))
