"""What a worker measures of itself while it works: speeds for those who queue, and figures for Prometheus."""

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from infinity_pool.broker.messages import LANES
from infinity_pool.workers.loop.batching import Budget
from infinity_pool.workers.loop.held import Held, Unit, size_of

_SMOOTHING = 0.1  # the weight of the newest measurement
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144)
_NO_BUDGET = Budget(0)


class Meter:
    """
    Counts since the start, and smoothed speeds.

    `tokens_per_second` is what the device does when it is busy: batches of less than half of the budget, as an idle
    worker runs them, say nothing of that.
    """

    def __init__(
        self, model: str, held: Callable[[], int], tokens_per_second: float = 0.0, budget: Budget = _NO_BUDGET
    ) -> None:
        self.tokens_per_second = tokens_per_second
        self._budget = budget
        self.tokens_per_char = 0.3
        self.items_done = 0
        self.tokens_done = 0
        self.device_seconds = 0.0
        self._held = held
        self._moved = time.monotonic()
        self._running = 0
        self._waits_since: float | None = None
        self._model = model
        self._registry = CollectorRegistry()
        waited = self._histogram("queue_seconds", "From being queued to the start of its batch.", _SECONDS, "lane")
        self._waited = {lane: waited.labels(model, lane) for lane in LANES}
        self._prepared = self._histogram("tokenize_seconds", "Preparing some jobs of a take.", _SECONDS).labels(model)
        self._ran = self._histogram("inference_seconds", "Running one batch.", _SECONDS).labels(model)
        self._batch_items = self._histogram("batch_items", "Items in a batch.", _ITEMS).labels(model)
        self._batch_tokens = self._histogram("batch_tokens", "Tokens in a batch, without padding.", _TOKENS).labels(
            model
        )
        self._padding = self._counter("padding_tokens", "Tokens run that were padding.").labels(model)
        self._truncated = self._counter("truncated_items", "Items cut to the model's limit.").labels(model)
        self._used = self._counter("device_seconds", "Time for which the device was used.").labels(model)
        self._failed = self._counter("failures", "Jobs that failed.", "reason")
        Gauge("infinity_worker_jobs_held", "Jobs in hand.", registry=self._registry).set_function(held)
        ProcessCollector(registry=self._registry)

    def prepared(self, seconds: float) -> None:
        """Count the preparation of some jobs of a take."""
        self._prepared.observe(seconds)

    def counted(self, held: Held) -> None:
        """Learn from a prepared job how many tokens a character makes, for those who must guess."""
        self._truncated.inc(held.truncated)
        chars = sum(_chars(item) for item in held.job.items)
        if chars and not held.truncated:
            self.tokens_per_char += _SMOOTHING * (held.tokens / chars - self.tokens_per_char)

    def starts(self, units: list[Unit]) -> None:
        """Note how long the jobs of a batch that starts now have waited; each job once, at its first item."""
        self._running += 1
        now = time.monotonic()
        for unit in units:
            if unit.item == 0:
                self._waited[unit.held.delivery.lane].observe(max(0.0, now - unit.held.delivery.queued))

    def ran(self, units: list[Unit], seconds: float) -> None:
        """Count one batch."""
        tokens, run = size_of(units, self._budget)
        self.items_done += len(units)
        self.tokens_done += tokens
        self._moved = time.monotonic()
        self._ran.observe(seconds)
        self._batch_items.observe(len(units))
        self._batch_tokens.observe(tokens)
        self._padding.inc(run - tokens)
        if seconds > 0 and 2 * run >= self._budget.tokens:
            self.tokens_per_second += _SMOOTHING * (tokens / seconds - self.tokens_per_second)

    def ended(self, seconds: float = 0.0) -> None:
        """Note that a batch runs no more, however it ended, and for how long it had the device."""
        self._running -= 1
        self.device_seconds += seconds
        self._used.inc(seconds)

    def waits_for_turn(self) -> None:
        """Note that others may have the device before the next batch: one that waits for them is not stalled."""
        self._waits_since = time.monotonic()

    def has_turn(self) -> None:
        """Note that the wait for the device is over."""
        now = time.monotonic()
        self._moved = min(now, self._moved + now - (self._waits_since or now))
        self._waits_since = None

    def woke(self) -> None:
        """Note that work has come to an idle worker; one that still runs a batch is none, whoever waits for that."""
        if not self._running:
            self._moved = time.monotonic()

    def stalled(self) -> float:
        """Give the seconds for which work has been in hand, or a batch running, and no batch was finished."""
        if not (self._held() or self._running):
            return 0.0
        return max(0.0, (self._waits_since or time.monotonic()) - self._moved)

    def failed(self, code: str) -> None:
        """Count one failure by its wire code."""
        self._failed.labels(self._model, code).inc()

    def report(self) -> dict[str, Any]:
        """Give what goes into the heartbeat."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_char": self.tokens_per_char,
            "items_done": self.items_done,
            "tokens_done": self.tokens_done,
            "device_seconds": self.device_seconds,
            "jobs_held": self._held(),
            "stalled": self.stalled(),
        }

    def exposition(self) -> bytes:
        """Give everything in Prometheus's text format."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        names = ("model", *labels)
        return Histogram(f"infinity_worker_{name}", about, names, buckets=buckets, registry=self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"infinity_worker_{name}", about, ("model", *labels), registry=self._registry)


def _chars(item: Any) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(_chars(part) for part in item) if isinstance(item, (list, tuple)) else 0
