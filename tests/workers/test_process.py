"""A worker process as a whole: how it ends."""

import asyncio
import sys

import pytest

from infinity_pool.workers.process import run_worker
from infinity_pool.workers.settings import WorkerSettings
from infinity_pool.workers.supervise import EXIT_REFUSED


async def test_a_worker_that_cannot_load_ends_whatever_its_heartbeat_does_at_that_moment(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)  # this process is not the worker's own
    monkeypatch.setenv("PYTHONWARNINGS", "")
    settings = WorkerSettings(model="/no/such/folder", redis_url=redis_url)
    for _ in range(40):  # a cancellation is lost in about one of ten
        worker = asyncio.create_task(run_worker(settings))
        assert await asyncio.wait([worker], timeout=20) == ({worker}, set())
        assert worker.result() == EXIT_REFUSED
