"""
Single requests, at random moments of a mean rate, idle and beside a backfill: p50 and p99 in times of one batch.

A batch's time is the mean of those that the worker ran beside the backfill, as its own metrics have it.
"""

import argparse
import asyncio
import random
import re
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from infinity_pool import Client
from infinity_pool.api.clients.client import AnyClient
from infinity_pool.cli.bench.corpus import texts
from tests.benchmarks.backfill.stack import MINILM, NAME, embed, serving, show, write
from tests.cli.conftest import free_port

_SETTLED = 5.0  # s after which a backfill is in full swing
_MOST_RATE = 5000  # items/s that no worker here does: the documents must last
_PERCENTILES = (50, 99)


def add_options(options: argparse.ArgumentParser) -> None:
    """Declare the part's options."""
    options.add_argument("--seconds", type=float, default=60.0, help="of each of the two")
    options.add_argument("--rate", type=float, default=10.0, help="requests a second")
    options.add_argument("--model", default=MINILM)
    options.add_argument("--engine", default="onnx")


def run(asked: argparse.Namespace) -> None:
    """Measure, and print the times."""
    asyncio.run(_run(asked))


async def _run(asked: argparse.Namespace) -> None:
    port = free_port()
    options = ("--model", asked.model, "--engine", asked.engine, "--admin-port", str(port))
    with tempfile.TemporaryDirectory() as name, serving(*options) as url:
        write(Path(name), int(_MOST_RATE * (asked.seconds + 2 * _SETTLED)))
        idle = await singles(url, asked.rate, asked.seconds)
        backfill = embed(Path(name), url)
        try:
            await asyncio.sleep(_SETTLED)
            before = batches(port)
            beside = await singles(url, asked.rate, asked.seconds)
            count, seconds = (now - then for now, then in zip(batches(port), before, strict=True))
            assert backfill.poll() is None, "the documents were too few"
        finally:
            backfill.kill()
            backfill.wait()
    batch = seconds / count
    rows = [row("idle", idle, batch), row("beside a backfill", beside, batch)]
    rows.append(["more", *(f"{more:.2f} batches" for more in (np.subtract(ends(beside), ends(idle)) / batch))])
    columns = ["", *(f"p{percent}" for percent in _PERCENTILES)]
    title = f"{len(idle)} and {len(beside)} single requests; a batch beside them takes {1e3 * batch:.1f} ms"
    show(title, columns, rows)


def ends(times: list[float]) -> list[float]:
    """Give the percentiles."""
    return [float(value) for value in np.percentile(times, _PERCENTILES)]


def row(what: str, times: list[float], batch: float) -> list[str]:
    """Give one line of the table."""
    return [what, *(f"{1e3 * value:.1f} ms, {value / batch:.2f} batches" for value in ends(times))]


async def singles(url: str, rate: float, seconds: float) -> list[float]:
    """Ask at random moments, whether those before are answered or not; give the seconds of each."""
    rng, until, asked = random.Random(2), time.monotonic() + seconds, []
    async with Client(url) as client:
        await client.embed(NAME, "the first one connects")
        while time.monotonic() < until:
            asked.append(asyncio.create_task(_single(client, *texts(rng, "short", 1))))
            await asyncio.sleep(rng.expovariate(rate))
        return await asyncio.gather(*asked)


async def _single(client: AnyClient, text: str) -> float:
    started = time.perf_counter()
    await client.embed(NAME, text)
    return time.perf_counter() - started


def batches(port: int) -> tuple[float, float]:
    """Give how many batches the worker has run, and their seconds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        said = answer.read().decode()
    count, total = (
        float(re.findall(rf"^infinity_worker_inference_seconds_{what}\{{.*\}} (.+)$", said, re.MULTILINE)[0])
        for what in ("count", "sum")
    )
    return count, total
