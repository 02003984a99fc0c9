"""Keys that share a model: who sends far more than their part does not slow down the others."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

from infinity_pool.broker.client import QueueClient

from .conftest import Stack
from .processes import Worker, until_served

Start = Callable[..., Any]

ITEM = 0.005
"""Seconds that an item takes: 200 a second, 8 in a batch."""
BATCH = 8 * ITEM
TEXT = "x" * 130


async def test_a_flood_leaves_the_others_as_they_were(stack: Stack, start: Start) -> None:
    """Whether it comes by the same client, as by the same replica of the API, or by another."""
    start(Worker, stack.server.url, "fair", "--batch-tokens", "240", model=f"dummy:{ITEM}").ready()
    await until_served(stack.url, "fair")
    async with QueueClient(stack.server.url) as client, QueueClient(stack.server.url) as other:
        alone = await pace(client)
        flood = [asyncio.create_task(ten_times(each)) for each in (client, other) for _ in range(50)]
        await asyncio.sleep(1)
        beside = await pace(client)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
    # it waits for an item that runs, and no longer for a batch; the flood is 4 s of work at any time
    assert beside < 2 * alone + 3 * BATCH, f"a job took {alone:.3f} s alone and {beside:.3f} s beside a flood"


async def pace(client: QueueClient) -> float:
    """Send a quarter of what the worker can do, for three seconds; give the 99th percentile of the times."""
    times: list[float] = []

    async def one() -> None:
        began = time.monotonic()
        await client.submit("fair", "embed", [TEXT], key="quiet")
        times.append(time.monotonic() - began)

    async with asyncio.TaskGroup() as group:
        for _ in range(150):
            group.create_task(one())
            await asyncio.sleep(0.02)
    return statistics.quantiles(times, n=100)[-1]


async def ten_times(client: QueueClient) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await client.submit("fair", "embed", [TEXT] * 8, key="loud")
