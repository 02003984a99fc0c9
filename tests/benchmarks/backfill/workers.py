"""
One backfill on 1, 10 and 100 workers, real processes, whose device takes a set time an item.

What is measured is a window of full work: start and end are left out. The queue's CPU is Redis's own count (INFO cpu),
that of the workers the kernel's. Before each, the same window without work says what idle workers cost.
"""

import argparse
import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.presence import read_model
from tests.benchmarks.backfill.stack import NAME, embed, serving, show, write

_SETTLED = 5.0  # s after the first answers in which all workers come to be busy
_HELD = 192  # documents for each worker: two batches, and what is on the way
_LONGEST_START = 60.0  # s


class Count(NamedTuple):
    """What has come so far: seconds, items, CPU seconds of the queue and of the workers, and the queue's commands."""

    clock: float
    items: int
    queue: float
    workers: float
    commands: int

    def since(self, before: "Count") -> "Count":
        """Give what came since."""
        return Count(
            self.clock - before.clock,
            self.items - before.items,
            self.queue - before.queue,
            self.workers - before.workers,
            self.commands - before.commands,
        )


def add_options(options: argparse.ArgumentParser) -> None:
    """Declare the part's options."""
    options.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    options.add_argument("--seconds", type=float, default=20.0, help="of each window")
    options.add_argument("--seconds-an-item", type=float, default=0.05)


def run(asked: argparse.Namespace) -> None:
    """Measure, and print a line for each number of workers."""
    rows = [asyncio.run(_measured(asked, count)) for count in asked.workers]
    columns = ["workers", "items/s", "of perfect", "queue's CPU an item", "queue busy", "workers busy, each"]
    columns += ["idle: commands/s", "queue busy", "workers busy, each"]
    show(f"workers of {asked.seconds_an_item:g} s an item", columns, rows)


async def _measured(asked: argparse.Namespace, count: int) -> list[str]:
    model = f"dummy:{asked.seconds_an_item:g}"
    options = ("--model", model, "--engine", "dummy", "--preprocess-workers", "0", "--batch-tokens", "256")
    perfect = count / asked.seconds_an_item
    with tempfile.TemporaryDirectory() as name, serving(*options, count=count) as url:
        async with connect(url) as redis:
            idle = await _window(redis, asked.seconds / 2)
            write(Path(name), int(perfect * (asked.seconds + 3 * _SETTLED)) + 2 * _HELD * count)
            backfill = embed(Path(name), url, "--max-in-flight", str(max(2048, _HELD * count)))
            try:
                await _begun(redis, backfill)
                busy = await _window(redis, asked.seconds)
                assert backfill.poll() is None, "the documents were too few"
            finally:
                backfill.kill()
                backfill.wait()
    rate = busy.items / busy.clock
    return [
        *(str(count), f"{rate:,.0f}", f"{rate / perfect:.3f}", f"{1e6 * busy.queue / busy.items:.1f} us"),
        *(f"{busy.queue / busy.clock:.1%}", f"{busy.workers / busy.clock / count:.2%}"),
        *(f"{idle.commands / idle.clock:,.0f}", f"{idle.queue / idle.clock:.1%}"),
        f"{idle.workers / idle.clock / count:.2%}",
    ]


async def _begun(redis: Redis, backfill: "subprocess.Popen[bytes]") -> None:
    """Wait until work is done, and all have had the time to have some."""
    async with asyncio.timeout(_LONGEST_START):
        while not (await _count(redis)).items:
            assert backfill.poll() is None
            await asyncio.sleep(0.1)
    await asyncio.sleep(_SETTLED)


async def _window(redis: Redis, seconds: float) -> Count:
    before = await _count(redis)
    await asyncio.sleep(seconds)
    return (await _count(redis)).since(before)


async def _count(redis: Redis) -> Count:
    workers = (await read_model(redis, NAME)).workers
    cpu, stats = await redis.info("cpu"), await redis.info("stats")
    queue = cpu["used_cpu_sys"] + cpu["used_cpu_user"]
    items = sum(worker.items_done for worker in workers)
    theirs = sum(sum(psutil.Process(worker.pid).cpu_times()[:2]) for worker in workers)
    return Count(time.monotonic(), items, queue, theirs, stats["total_commands_processed"])
