"""What a worker says of itself: to the queue with each heartbeat, in its log, and on its admin port."""

from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus

from infinity_pool.broker.presence import WorkerInfo
from infinity_pool.workers.admin import AdminPort, Page
from infinity_pool.workers.files.licence import licence_of
from infinity_pool.workers.measuring.meter import Meter
from infinity_pool.workers.measuring.pulse import Pulse
from infinity_pool.workers.models.loading import LoadedModel
from infinity_pool.workers.settings import WorkerSettings


def description(loaded: LoadedModel) -> dict[str, object]:
    """Give what stays as it is from the load on, by the fields of WorkerInfo."""
    return {
        "family": loaded.family_name,
        "tasks": list(loaded.family.tasks),
        "modalities": list(loaded.family.modalities),
        "labels": list(loaded.family.labels),
        "prompts": list(loaded.family.prompts),
        "engine": loaded.engine_name,
        "device": loaded.engine.device,
        "dtype": loaded.engine.dtype,
        "embedding_dtype": loaded.files.embedding_dtype,
        "cosine": loaded.cosine,
        "max_length": loaded.family.max_length,
        "max_chars": loaded.family.max_chars,
        "dimensions": loaded.family.dimensions,
        "fingerprint": loaded.fingerprint,
        "licence": licence_of(loaded.files.path),
    }


def summary(info: WorkerInfo) -> str:
    """Say in a line what is served, and how."""
    return (
        f"{info.family} on {info.engine}, {info.device}, {info.dtype}, up to {info.max_length} tokens an item, "
        f"{info.batch_tokens} a batch"
    )


def measured(meter: Meter, state: str, patience: float) -> dict[str, object]:
    """Give what is measured; one that is ready is stuck once it has finished no batch for `patience` seconds."""
    stuck = state == "ready" and meter.stalled() > patience
    return {**meter.report(), "state": "stuck" if stuck else state}


def admin_port(settings: WorkerSettings, pulse: Pulse, meter: Meter) -> AbstractContextManager[object]:
    """Open the port for probes and Prometheus, if there is to be one."""
    if not settings.admin_port:
        return nullcontext()

    def ready() -> tuple[HTTPStatus, bytes]:
        state = str(measured(meter, pulse.info.state, settings.stall_timeout)["state"])
        return HTTPStatus.OK if state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE, state.encode()

    pages: dict[str, Page] = {
        "/health": lambda: (HTTPStatus.OK, b"ok"),
        "/ready": ready,
        "/metrics": lambda: (HTTPStatus.OK, meter.exposition()),
    }
    return AdminPort(settings.admin_port, pages)
