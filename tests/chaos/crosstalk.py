"""Fifty who check their answers beside five hundred who go away at random, on a long wire to the queue."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.chaos.report import Part
from tests.end_to_end.baseline import Baseline, back_to, look
from tests.end_to_end.crowd import Crowd
from tests.end_to_end.load import Load, Tally
from tests.end_to_end.processes import Pool
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer

_WIRE = 0.05  # s each way
_LONGEST = 60.0  # s
_FIRST = 0.25  # of that time, for a first load of the same kind, so that all is open and allocated


async def crosstalk(folder: Path, seconds: float, seed: int) -> Part:
    """Nobody may get another's answer, none, or two."""
    server = RedisServer(folder)
    async with Proxy(server.port, _WIRE) as proxy:
        options = ("--model", "dummy", "--engine", "dummy", "--served-model-name", "m", "--replicas", "2")
        pool = Pool(*options, "--redis-url", proxy.url)
        try:
            await asyncio.to_thread(pool.ready)
            part = await _beside_a_crowd(pool, server, min(_LONGEST, seconds), seed)
        finally:
            (folder / "pool.log").write_text(pool.output)
            await asyncio.to_thread(pool.end)
            server.close()
    if part.tally.refused:
        part.failures.append(f"{part.tally.refused} were refused, and nothing was wrong with the queue")
    return part


async def _beside_a_crowd(pool: Pool, server: RedisServer, seconds: float, seed: int) -> Part:
    def now() -> Baseline:
        return look(server, pool.family(), [pool.url])

    await _ask(pool.url, _FIRST * seconds, seed)
    before = await back_to(now(), now)
    tally, dropped = await _ask(pool.url, seconds, seed)
    part = Part("crosstalk", tally, Counter({"clients that went away": dropped}), before)
    await part.come_back(now)
    return part


async def _ask(url: str, seconds: float, seed: int) -> tuple[Tally, int]:
    """Check answers for so long, beside those who do not wait for theirs; give the account, and how many went."""
    async with (
        Crowd(url, "m", clients=500, pause=1.0) as crowd,
        Load(lambda: [url], "m", clients=50, pause=0.1, seed=seed) as load,
    ):
        await asyncio.sleep(seconds)
    return load.tally, crowd.dropped
