"""A hundred thousand results for a producer that is killed at random, beside workers that are."""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from infinity_pool.broker import keys
from infinity_pool.broker.messages import LANES
from tests.chaos.faults import close_all_connections, kill_a_worker
from tests.chaos.producing import MODEL, NAME
from tests.chaos.report import Part
from tests.chaos.stack import SLOTS, Stack
from tests.end_to_end.load import Tally
from tests.end_to_end.patience import until
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer

_RESULTS = 100_000
_WHOLE_RUN = 600.0  # s; a shorter run has fewer results


async def producer(folder: Path, seconds: float, seed: int) -> Part:
    """Each result comes, and is written down once in each of the producer's lives at most."""
    total = int(_RESULTS * min(1.0, seconds / _WHOLE_RUN))
    done = folder / "done"
    done.touch()
    server = RedisServer(folder)
    async with Proxy(server.port) as proxy:
        stack = Stack(folder, proxy, server)
        try:
            for slot in SLOTS:
                await stack.start_worker(slot)
            faults = await _until_done(stack, total, done, random.Random(seed))
            part = _account(done, total, faults)
            part.failures += await _left(server)
        finally:
            await stack.close()
    return part


async def _until_done(stack: Stack, total: int, done: Path, rng: random.Random) -> Counter[str]:
    """Start the producer again whenever it was killed, until it ends by itself."""
    faults = Counter[str]()
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.producing", stack.server.url, str(total), str(done))
        )
        try:
            assert await asyncio.wait_for(process.wait(), rng.uniform(1, 12)) == 0
            return faults
        except TimeoutError:
            process.kill()
            await process.wait()
            faults["kill the producer"] += 1
        for fault, chance in ((kill_a_worker, 0.3), (close_all_connections, 0.3)):
            if rng.random() < chance:
                await fault(stack, rng)
                faults[fault.__name__.replace("_", " ")] += 1


def _account(done: Path, total: int, faults: Counter[str]) -> Part:
    lives = [life.split() for life in _lives(done.read_text())]
    numbers = Counter(line for life in lives for line in life[::2])
    verdicts = {number: verdict for life in lives for number, verdict in zip(life[::2], life[1::2], strict=True)}
    tally = Tally(sent=total, answered=sum(verdict == "right" for verdict in verdicts.values()))
    tally.lost = total - len(numbers)
    tally.wrong = len(verdicts) - tally.answered
    tally.doubled = sum(count - 1 for life in lives for count in Counter(life[::2]).values())
    for number, verdict in verdicts.items():
        if verdict != "right":
            tally.complain(f"job {number}: {verdict}")
    return Part("producer", tally, faults)


def _lives(text: str) -> list[str]:
    """Cut what was written down into lives, without the lines that a kill cut short."""
    lives = [""]
    for line in text.splitlines():
        if not line:
            lives.append("")
        elif len(line.split()) == 2:
            lives[-1] += f" {line}"
    return lives


async def _left(server: RedisServer) -> list[str]:
    """Say what is left on the queue, where nothing should be."""
    streams = [*(keys.jobs(MODEL, lane) for lane in LANES), keys.replies(NAME)]

    def left() -> dict[str, Any]:
        entries = {name: server.ask("XRANGE", name, "-", "+") for name in streams}
        return {name: found for name, found in entries.items() if any(b"made" not in fields for _, fields in found)}

    try:
        await until(lambda: not left())
    except AssertionError:
        return [f"{name} still has {found[:3]}" for name, found in left().items()]
    return []
