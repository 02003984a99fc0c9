"""What Prometheus is told; nothing is looked up by name twice, since this runs with every request."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from infinity_pool.broker.messages import Result
from infinity_pool.broker.presence import ModelStatus, State

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_ANSWER = ("route", "status")
_WORK = ("model", "task")

Statuses = Callable[[], Mapping[str, ModelStatus]]


class _Work(NamedTuple):
    items: Counter
    tokens: Counter
    truncated: Counter


class Metrics:
    """
    The counts of one API process.

    `statuses` gives what is known of the models and their queues, `awaited` the number of jobs whose reply is awaited.
    """

    def __init__(self, statuses: Statuses, awaited: Callable[[], int]) -> None:
        self.in_flight = 0
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry, namespace="infinity")
        self._requests = counter("http_requests", "Requests answered.", _ANSWER)
        self._seconds = Histogram(
            "infinity_http_request_duration_seconds",
            "From the head of a request to its answer.",
            _ANSWER,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._work = _Work(
            counter("items", "Items run.", _WORK),
            counter("tokens", "Tokens run.", _WORK),
            counter("truncated_items", "Items cut to the model's limit.", _WORK),
        )
        gauge = Gauge("infinity_http_requests_in_flight", "Requests in hand.", registry=self._registry)
        gauge.set_function(lambda: self.in_flight)
        Gauge("infinity_jobs_awaited", "Jobs whose reply is awaited.", registry=self._registry).set_function(awaited)
        self._registry.register(_Queues(statuses))
        ProcessCollector(registry=self._registry)
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._by_task: dict[tuple[str, str], _Work] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        pair = self._by_answer.get((route, status))
        if pair is None:
            labels = (route, str(status))
            pair = self._by_answer[route, status] = (self._requests.labels(*labels), self._seconds.labels(*labels))
        requests, durations = pair
        requests.inc()
        durations.observe(seconds)

    def ran(self, model: str, task: str, items: int, result: Result) -> None:
        """Count what a model did."""
        work = self._by_task.get((model, task))
        if work is None:
            work = self._by_task[model, task] = _Work(*(counter.labels(model, task) for counter in self._work))
        work.items.inc(items)
        work.tokens.inc(result.tokens)
        work.truncated.inc(result.truncated)

    def exposition(self) -> bytes:
        """Give everything in Prometheus's text format."""
        return generate_latest(self._registry)


class _Queues(Collector):
    """What waits for each model, and who serves it, as of the last look about a second ago."""

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses

    def collect(self) -> Iterable[Metric]:
        """Make the gauges anew, so that a model that is gone leaves none behind."""
        known = self._statuses().values()
        for unit in ("items", "tokens", "bytes"):
            gauge = GaugeMetricFamily(
                f"infinity_queue_{unit}", f"{unit.capitalize()} queued or in hand.", labels=["model", "lane"]
            )
            for model in known:
                for lane, waiting in model.waiting.items():
                    gauge.add_metric([model.name, lane], getattr(waiting, unit))
            yield gauge
        yield self._workers(known)

    def _workers(self, known: Iterable[ModelStatus]) -> Metric:
        gauge = GaugeMetricFamily("infinity_workers", "Workers alive.", labels=["model", "state"])
        for model in known:
            for state in get_args(State):
                gauge.add_metric([model.name, state], sum(worker.state == state for worker in model.workers))
        return gauge
