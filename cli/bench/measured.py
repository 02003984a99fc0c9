"""What a load test has seen."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Measured:
    """The latencies, in seconds, of good answers to requests of `items` texts each, and how often each error came."""

    items: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        """How many requests have ended, well or not."""
        return len(self.latencies) + self.errors.total()

    @property
    def requests_per_second(self) -> float:
        """Good answers per second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

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

    def since(self, earlier: int, seconds: float) -> "Measured":
        """Give the part that came after the first `earlier` good answers, in the last so many seconds."""
        return Measured(self.items, seconds, self.latencies[earlier:], self.errors)
