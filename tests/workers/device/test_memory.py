"""What a model needs, what there is, and a worker that has more than its limit."""

import asyncio
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.presence import read_model
from infinity_pool.workers.device import memory
from infinity_pool.workers.device.sizes import parse_size
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.process import run_worker
from infinity_pool.workers.settings import ModelSettings, WorkerSettings
from infinity_pool.workers.supervision.supervise import EXIT_REFUSED
from tests.workers.conftest import MINILM, ignore_progress

PATIENCE = 30.0  # s, on a busy machine
GROWING = """
import sys
from infinity_pool.cli.worker import main
from infinity_pool.workers.device import memory
from infinity_pool.workers.engines.dummy import DummyEngine

run, held = DummyEngine.run, []
memory._LOOK = 0.05

def grow(self, batch, reduce):
    if 7 in batch["chars"]:
        held.append(b"x" * 300_000_000)
    return run(self, batch, reduce)

DummyEngine.run = grow
main()
"""


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("1000", 1000), ("4GiB", 4 * 2**30), ("1.5 GB", 1_500_000_000), ("2B", 2)]
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["much", "4G", "-1", "0", "0 MB", "1kB"])
def test_what_is_no_size_is_refused_before_anything_is_loaded(text: str) -> None:
    with pytest.raises(InvalidInput, match=f"such as 4GiB or 500MB, not '{text}'") as refused:
        ModelSettings(model="m", memory_limit=text).check()
    assert refused.value.param == "memory_limit"


def test_weights_are_counted_in_the_format_that_is_wanted(tmp_path: Path) -> None:
    found = dataclasses.replace(locate(ModelSettings(model=MINILM), ignore_progress), built=tmp_path)
    whole = memory.weights(found, "torch", "cpu", "auto")
    assert whole == pytest.approx(90_900_000, rel=0.01)
    assert memory.weights(found, "torch", "cpu", "bfloat16") == whole // 2
    assert memory.weights(found, "torch", "cuda:0", "auto") == whole // 2


def test_what_does_not_fit_is_refused_with_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "in_use", lambda device: 100_000_000)
    monkeypatch.setattr(memory, "free_memory", lambda device, engine: 2_000_000_000)
    memory.require_room(400_000_000, 500_000_000, "cpu")
    with pytest.raises(InvalidInput) as refused:
        memory.require_room(450_000_000, 500_000_000, "cpu")
    assert refused.value.message == (
        "the model does not fit: it needs about 550 MB on cpu, with a limit of 500 MB, and 2.0 GB are free"
    )
    with pytest.raises(InvalidInput, match=r"it needs about 2\.2 GB on cpu, and 2\.0 GB are free"):
        memory.require_room(2_100_000_000, 0, "cpu")


def test_a_container_has_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    here = memory.free_memory("cpu")
    assert here is not None
    assert here > 1e6
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500\n")
    assert memory.free_memory("cpu") == 2500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory("cpu") != 2500


async def test_a_worker_that_does_not_fit_is_refused_and_it_can_be_read_why(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)  # this process is not the worker's own
    monkeypatch.setenv("PYTHONWARNINGS", "")
    asked = WorkerSettings(model="dummy", engine="dummy", memory_limit="1MB", redis_url=redis_url)
    assert await run_worker(asked) == EXIT_REFUSED
    [worker] = (await read_model(redis, "dummy")).workers
    assert worker.state == "refused"
    assert "the model does not fit" in worker.stage
    assert "with a limit of 1 MB" in worker.stage


async def test_a_worker_that_comes_to_have_too_much_answers_what_it_holds_and_ends(redis_url: str) -> None:
    options = ["--model", "dummy", "--engine", "dummy", "--redis-url", redis_url, "--memory-limit", "300MB"]
    worker = subprocess.Popen([sys.executable, "-c", GROWING, *options], stderr=subprocess.PIPE, text=True)
    async with asyncio.timeout(PATIENCE), QueueClient(redis_url, timeout=PATIENCE) as client:
        while not client.best("dummy"):
            await client.models()
        assert (await client.embed("dummy", ["x" * 7])).tolist() == [[7] * 13]
        _, said = await asyncio.to_thread(worker.communicate)
    assert worker.returncode == memory.EXIT_OVER_LIMIT
    assert "with a limit of 300 MB: it finishes what it holds, and ends" in said
