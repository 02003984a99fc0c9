"""What a worker measures of itself while it works."""

import time
from collections import Counter
from typing import Any

from infinity_pool.workers.held import Held, Unit, padded_tokens

_SMOOTHING = 0.1  # the weight of the newest measurement


class Meter:
    """Counts since the start, and smoothed speeds."""

    def __init__(self, tokens_per_second: float = 0.0) -> None:
        self.tokens_per_second = tokens_per_second
        self.tokens_per_char = 0.3
        self.items_done = 0
        self.tokens_done = 0
        self.padded_done = 0
        self.batches_done = 0
        self.prepare_seconds = 0.0
        self.run_seconds = 0.0
        self.failures: Counter[str] = Counter()
        self.last_batch = time.monotonic()

    def prepared(self, seconds: float) -> None:
        """Count the preparation of one take."""
        self.prepare_seconds += seconds

    def counted(self, held: Held) -> None:
        """Learn from a prepared job how many tokens a character makes, for those who must guess."""
        chars = sum(_chars(item) for item in held.job.items)
        if chars and not held.truncated:
            self.tokens_per_char += _SMOOTHING * (held.tokens / chars - self.tokens_per_char)

    def ran(self, units: list[Unit], seconds: float) -> None:
        """Count one batch."""
        tokens = sum(int(unit.rows.lengths[unit.place]) for unit in units)
        self.items_done += len(units)
        self.tokens_done += tokens
        self.padded_done += padded_tokens(units)
        self.batches_done += 1
        self.run_seconds += seconds
        self.last_batch = time.monotonic()
        if seconds > 0:
            self.tokens_per_second += _SMOOTHING * (tokens / seconds - self.tokens_per_second)

    def failed(self, code: str) -> None:
        """Count one failure by its wire code."""
        self.failures[code] += 1

    def report(self) -> dict[str, Any]:
        """Give what goes into the heartbeat."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_char": self.tokens_per_char,
            "items_done": self.items_done,
            "tokens_done": self.tokens_done,
        }


def _chars(item: Any) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(_chars(part) for part in item) if isinstance(item, (list, tuple)) else 0
