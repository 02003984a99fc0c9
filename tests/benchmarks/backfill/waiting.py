"""The queue's memory while documents wait that nobody takes, in jobs of 64."""

import argparse
import asyncio
import random

from infinity_pool.broker import keys
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.outbox import QueueLimits
from infinity_pool.broker.producer import Producer
from infinity_pool.broker.splitting import JOB_ITEMS
from infinity_pool.cli.bench.corpus import texts
from tests.benchmarks.backfill.stack import NAME, show


def add_options(options: argparse.ArgumentParser) -> None:
    """Declare the part's options."""
    options.add_argument("--documents", type=int, default=1_000_000)


def run(asked: argparse.Namespace) -> None:
    """Measure, and print the memory."""
    waiting, size, used = asyncio.run(_run(asked.documents))
    rows = [
        ["documents that wait", f"{waiting:,}", ""],
        ["their text", f"{size / 2**20:.1f} MiB", f"{size / waiting:.1f} bytes each"],
        ["the queue's memory for them", f"{used / 2**20:.1f} MiB", f"{used / waiting:.1f} bytes each"],
    ]
    show("documents that wait", ["", "", ""], rows)


async def _run(count: int) -> tuple[int, int, int]:
    """Give how many wait, the bytes of their text, and those of the queue for them."""
    rng, size = random.Random(3), 0
    with EmbeddedServer.start() as server:
        limits = QueueLimits(items=2 * count, tokens=2**40, bytes=2**40)
        async with connect(server.url) as redis, Producer(server.url, "b", max_in_flight=count, limits=limits) as put:
            before = (await redis.info("memory"))["used_memory"]
            for first in range(0, count, JOB_ITEMS):
                part = texts(rng, "short", min(JOB_ITEMS, count - first))
                size += sum(map(len, part))
                await put.put(NAME, part, id=str(first))
            used = (await redis.info("memory"))["used_memory"] - before
            told = (await redis.hgetall(keys.waiting(NAME)))[b"bulk:items"]
    return int(told), size, used
