"""A worker process as a whole: how it ends."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_pool.workers.process import run_worker
from infinity_pool.workers.settings import WorkerSettings
from infinity_pool.workers.supervision.supervise import EXIT_ABSENT, EXIT_REFUSED


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


def test_a_model_that_cannot_be_had_now_is_no_refusal(server_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infinity_pool.cli.worker", "--model", "org/absent", "--redis-url", server_url]
    surroundings = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "INFINITY_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)
    assert ended.returncode == EXIT_ABSENT
    assert "'org/absent' is not on this machine, and the hub cannot be reached" in ended.stderr
