"""What a load test has seen."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Measured:
    """
    The latencies, in seconds, of good answers to requests of `items` texts each, and how often each error came.

    `ends` says when each good answer came; `done` is their number if some count in part only, by what lies within.
    """

    items: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    ends: list[float] = field(default_factory=list)
    done: float | None = None

    @property
    def answers(self) -> int:
        """How many requests have ended, well or not."""
        return len(self.latencies) + self.errors.total()

    @property
    def requests_per_second(self) -> float:
        """Good answers per second."""
        done = len(self.latencies) if self.done is None else self.done
        return done / self.seconds if self.seconds else 0.0

    @property
    def items_per_second(self) -> float:
        """Texts per second, of good answers."""
        return self.requests_per_second * self.items

    def percentile(self, percent: float) -> float:
        """Give a percentile of the latencies, in milliseconds; NaN if there were no good answers."""
        if not self.latencies:
            return float("nan")
        ordered = sorted(self.latencies)
        return 1e3 * ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]

    def add(self, started: float, ended: float) -> None:
        """Note a good answer."""
        self.latencies.append(ended - started)
        self.ends.append(ended)

    def within(self, since: float, until: float) -> "Measured":
        """
        Give what was done between two moments: of a request that spans one of them, the part of its time between them.

        Latencies are of the answers that came in that time; errors are all.
        """
        answers = list(zip(self.latencies, self.ends, strict=True))
        done = sum(max(0.0, min(end, until) - max(end - took, since)) / took for took, end in answers)
        latencies = [took for took, end in answers if since < end <= until]
        return Measured(self.items, until - since, latencies, self.errors, done=done)
