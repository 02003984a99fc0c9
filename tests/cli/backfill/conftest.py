"""A queue with a worker without a model, and the commands run in this process."""

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from infinity_pool import SyncClient
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.cli.backfill.run import backfill
from tests.cli.conftest import Running

MODEL = "m"
WIDTH = 13

Run = Callable[..., Coroutine[Any, Any, int]]


def worker(redis_url: str, *options: str) -> Running:
    return Running("worker", "--engine", "dummy", "--redis-url", redis_url, "--preprocess-workers", "0", *options)


@pytest.fixture(scope="package")
def queue_url() -> Iterator[str]:
    with EmbeddedServer.start() as server:
        running = worker(server.url, "--model", "dummy", "--served-model-name", MODEL)
        running.expect(" is ready: ")
        yield server.url
        running.end()


@pytest.fixture
def run(queue_url: str, tmp_path: Path) -> Run:
    """Run a command's work: `run("embed", "in.jsonl", out="out.npy", …)`, with names of files in the test's folder."""

    async def run(task: str, *inputs: str, out: str, model: str = MODEL, **options: Any) -> int:
        module = importlib.import_module(f"infinity_pool.cli.backfill.tasks.{task}")
        settings = module.Settings(
            model=model, out=out if "://" in out else str(tmp_path / out), **{"redis_url": queue_url, **options}
        )
        paths = [each if "://" in each else str(tmp_path / each) for each in inputs]
        async with asyncio.timeout(60):
            return await backfill(module, settings, tuple(paths))

    return run


@pytest.fixture
def items_run(queue_url: str) -> Callable[[], int]:
    """How many items the worker has run."""

    def count() -> int:
        with SyncClient(queue_url) as client:
            models = {model.name: model for model in client.models()}
            return sum(worker.items_done for worker in models[MODEL].workers)

    return count
