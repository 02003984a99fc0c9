"""What Prometheus is told; nothing is looked up by name twice, since this runs with every request."""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from infinity_pool.broker.messages import Result
from infinity_pool.broker.presence import ModelStatus, State

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own name for it
_NUMBER = "INFINITY_API_NUMBER"

_ANSWER = ("route", "status")
_WORK = ("model", "task")
_KEY = ("key", "model")

Statuses = Callable[[], Mapping[str, ModelStatus]]


class _Work(NamedTuple):
    items: Counter
    tokens: Counter
    truncated: Counter


class _Asked(NamedTuple):
    requests: Counter
    items: Counter
    tokens: Counter


def shared_metrics(folder: str, number: int) -> dict[str, str]:
    """
    Give the environment in which an API process shares its counts through files in `folder`.

    Its `number` is that of its place among those who share a port: who takes it after a death counts on from there.
    """
    return {_FOLDER: folder, _NUMBER: str(number)}


class Metrics:
    """
    The counts of one API process, or, where several share a port, of all of them, since any may be asked.

    `statuses` gives what is known of the models and their queues, `awaited` the number of jobs whose reply is awaited.
    `by_key` counts what each key had run too, by its name.
    """

    def __init__(self, statuses: Statuses, awaited: Callable[[], int], *, by_key: bool = True) -> None:
        self._awaited = awaited
        self._shared = _share()
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
        self._asked = _Asked(
            counter("key_requests", "Requests that a key had run.", _KEY),
            counter("key_items", "Items that a key had run.", _KEY),
            counter("key_tokens", "Tokens that a key had run.", _KEY),
        )
        gauge = partial(Gauge, registry=self._registry, namespace="infinity", multiprocess_mode="livesum")
        self._in_flight = gauge("http_requests_in_flight", "Requests in hand.")
        self._jobs_awaited = gauge("jobs_awaited", "Jobs whose reply is awaited.")
        self._batches = counter("batches", "Batches that ended here.", ("status",))
        self._batches_run = gauge("batches_in_progress", "Batches that are run.")
        self._batches_run.set(0)
        self._in_flight.set(0)  # the last process of this number may have died with some
        self._exposed = self._gathered(_Queues(statuses))
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._by_key: dict[tuple[str, str], _Asked] | None = {} if by_key else None
        self._by_task: dict[tuple[str, str], _Work] = {}

    def came(self) -> None:
        """Count a request in."""
        self._in_flight.inc()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request out."""
        self._in_flight.dec()
        self._jobs_awaited.set(self._awaited())
        pair = self._by_answer.get((route, status))
        if pair is None:
            labels = (route, str(status))
            pair = self._by_answer[route, status] = (self._requests.labels(*labels), self._seconds.labels(*labels))
        requests, durations = pair
        requests.inc()
        durations.observe(seconds)

    def ran(self, model: str, task: str, items: int, result: Result, key: str = "", requests: int = 1) -> None:
        """Count what a model did, and for whom: `key` is a name."""
        work = self._by_task.get((model, task))
        if work is None:
            work = self._by_task[model, task] = _Work(*(counter.labels(model, task) for counter in self._work))
        work.items.inc(items)
        work.tokens.inc(result.tokens)
        work.truncated.inc(result.truncated)
        if key and self._by_key is not None:
            asked = self._by_key.get((key, model))
            if asked is None:
                asked = self._by_key[key, model] = _Asked(*(counter.labels(key, model) for counter in self._asked))
            for counter, count in zip(asked, (requests, items, result.tokens), strict=True):
                counter.inc(count)

    def batch_ended(self, status: str) -> None:
        """Count a batch that came to an end."""
        self._batches.labels(status).inc()

    def runs_batches(self, count: int) -> None:
        """Say how many batches are run."""
        self._batches_run.set(count)

    def exposition(self) -> bytes:
        """Give everything in Prometheus's text format."""
        self._jobs_awaited.set(self._awaited())
        return generate_latest(self._exposed)

    def _gathered(self, queues: "_Queues") -> CollectorRegistry:
        """Give what is exposed; a process's own memory and time are not where one of several would stand for all."""
        exposed = CollectorRegistry() if self._shared else self._registry
        if self._shared:
            MultiProcessCollector(exposed)  # type: ignore[no-untyped-call]
        else:
            ProcessCollector(registry=exposed)
        exposed.register(queues)
        return exposed


def _share() -> bool:
    """Count in files that others read, if we are told to; says whether we are."""
    number = os.environ.get(_NUMBER)
    if number is not None:
        values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
    return _FOLDER in os.environ


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
        dead = GaugeMetricFamily("infinity_dead_letters", "Jobs that broke their worker every time.", labels=["model"])
        for model in known:
            dead.add_metric([model.name], model.dead)
        yield dead

    def _workers(self, known: Iterable[ModelStatus]) -> Metric:
        gauge = GaugeMetricFamily("infinity_workers", "Workers alive.", labels=["model", "state"])
        for model in known:
            for state in get_args(State):
                gauge.add_metric([model.name, state], sum(worker.state == state for worker in model.workers))
        return gauge
