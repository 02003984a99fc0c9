"""What became of everything, as tables that can stand in a document."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

from tests.end_to_end.baseline import Baseline, back_to
from tests.end_to_end.load import Tally

_CHANNEL_EXPIRY = 20.0  # s, for what a killed API has left
_REFUSALS = {429, 503}
"""Answers that say no, in time, and when to try again; any other is a failure."""


@dataclass
class Part:
    """One part of a run: its requests, the faults meanwhile, and the base lines around it."""

    name: str
    tally: Tally
    faults: Counter[str] = field(default_factory=Counter)
    before: Baseline | None = None
    after: Baseline | None = None
    failures: list[str] = field(default_factory=list)

    async def come_back(self, now: Callable[[], Baseline], growth: float = 30.0) -> None:
        """Wait until all is as before, with `growth` MiB to spare for each process; what is not is a failure."""
        assert self.before is not None
        try:
            self.after = await back_to(self.before, now, _CHANNEL_EXPIRY, growth=growth)
        except AssertionError as error:
            self.after = now()
            self.failures.append(str(error))

    def verdict(self) -> list[str]:
        """Say what was not as it must be; nothing if all was."""
        tally = self.tally
        counts = {"lost": tally.lost, "broken": tally.broken, "wrong": tally.wrong, "doubled": tally.doubled}
        found = [f"{count} {what}" for what, count in counts.items() if count]
        found += [f"{count} answered {status}" for status, count in tally.refused.items() if status not in _REFUSALS]
        if not tally.answered:
            found.append("nothing answered")
        return [f"{self.name}: {failure}" for failure in (*found, *self.failures)]


def show(parts: list[Part], seed: int) -> None:
    """Print what happened, one table for each question."""
    console = Console(width=130)
    console.print(f"seed {seed}\n")
    console.print(_requests(parts))
    for part in parts:
        if part.faults:
            console.print(_faults(part))
        if part.before and part.after:
            console.print(_baselines(part.before, part.after))
    for part in parts:
        if part.verdict():
            console.print("\n".join([*part.verdict(), *part.tally.complaints]), markup=False)


def _requests(parts: list[Part]) -> Table:
    columns = ("sent", "answered", "429", "503", "cut", "lost", "broken", "wrong", "doubled")
    table = Table("part", *columns, "longest wait", "longest refusal", box=box.MARKDOWN)
    for part in parts:
        tally = part.tally
        counts = (tally.sent, tally.answered, tally.refused[429], tally.refused[503], tally.cut)
        faults = (tally.lost, tally.broken, tally.wrong, tally.doubled)
        times = (f"{tally.longest:.1f} s", f"{tally.longest_refusal:.1f} s")
        table.add_row(part.name, *(f"{count:,}" for count in (*counts, *faults)), *times)
    return table


def _faults(part: Part) -> Table:
    table = Table("fault", "times", box=box.MARKDOWN)
    for name, times in sorted(part.faults.items()):
        table.add_row(name, str(times))
    table.add_row("all", str(part.faults.total()))
    return table


def _baselines(before: Baseline, after: Baseline) -> Table:
    table = Table("base line", "before", "after", box=box.MARKDOWN)
    for name, count in before.queue.items():
        table.add_row(name, str(count), str(after.queue.get(name, 0)))
    table.add_row("other keys that never expire", str(len(before.forever)), str(len(after.forever)))
    for name, vitals in before.vitals.items():
        now = after.vitals.get(name)
        texts = [f"{one.threads} threads, {one.fds} files, {one.rss:.0f} MiB" if one else "" for one in (vitals, now)]
        table.add_row(name, *texts)
    return table
