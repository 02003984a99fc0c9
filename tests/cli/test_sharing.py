"""Workers of two models on one device: each gets its share of the device's time."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infinity_pool.broker.client import QueueClient
from infinity_pool.cli.serve.run import shared
from infinity_pool.workers.settings import WorkerSettings

from .conftest import PATIENCE, Running, free_port

NAMES = ("much", "little")
SHARES = (("cuda:0", 3.0), ("cuda:0", 0.0), ("cuda:1", 0.0))


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[None]:
    """Keep both models at work, by requests of the bulk lane."""

    async def ask(client: QueueClient, name: str) -> None:
        while True:
            await client.embed(name, ["x" * 10] * 200, lane="bulk")

    async with asyncio.timeout(PATIENCE), QueueClient(url, timeout=PATIENCE) as client:
        while not all(map(client.best, NAMES)):
            await client.models()
        asking = [asyncio.create_task(ask(client, name)) for name in NAMES for _ in range(8)]
        yield
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def device_seconds(port: int, name: str) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
            lines = response.read().decode().splitlines()
    except OSError:  # it loads
        return 0.0
    label = f'infinity_worker_device_seconds_total{{model="{name}"}} '
    return next(float(line.removeprefix(label)) for line in lines if line.startswith(label))


async def test_two_models_share_a_device_by_weight(
    start: Callable[..., Running], redis_url: str, tmp_path: Path
) -> None:
    ports = {name: free_port() for name in NAMES}
    options = ["worker", "--model", "dummy:0.001", "--engine", "dummy", "--batch-tokens", "60"]
    options += ["--redis-url", redis_url]
    for name, weight in zip(NAMES, ("3", "1"), strict=True):
        own = ["--served-model-name", name, "--device-share", weight, "--admin-port", str(ports[name])]
        start(Running, *options, *own, TMPDIR=str(tmp_path))
    async with busy(redis_url):
        while any(device_seconds(ports[name], name) < 0.3 for name in NAMES):
            await asyncio.sleep(0.1)
        before = {name: device_seconds(ports[name], name) for name in NAMES}
        await asyncio.sleep(3)
        after = {name: device_seconds(ports[name], name) for name in NAMES}
    much, little = (after[name] - before[name] for name in NAMES)
    assert much / little == pytest.approx(3.0, rel=0.1)
    assert much + little > 2


def test_all_workers_of_a_device_take_turns_if_one_does() -> None:
    asked = [WorkerSettings(model="m", device=device, device_share=share) for device, share in SHARES]
    assert [each.device_share for each in shared(asked)] == [3.0, 1.0, 0.0]
