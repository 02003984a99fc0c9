"""Fifty who check their answers beside five hundred who go away at random, on a long wire to the queue."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.chaos.report import Part
from tests.end_to_end.baseline import back_to, look
from tests.end_to_end.crowd import Crowd
from tests.end_to_end.load import Load
from tests.end_to_end.processes import Pool
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer

_WIRE = 0.05  # s each way
_LONGEST = 60.0  # s


async def crosstalk(folder: Path, seconds: float, seed: int) -> Part:
    """Nobody may get another's answer, none, or two."""
    server = RedisServer(folder)
    async with Proxy(server.port, _WIRE) as proxy:
        options = ("--model", "dummy", "--engine", "dummy", "--served-model-name", "m", "--replicas", "2")
        pool = Pool(*options, "--redis-url", proxy.url)
        try:
            await asyncio.to_thread(pool.ready)
            async with Load(lambda: [pool.url], "m", clients=50, pause=0.05) as load:
                await load.more(500)
            before = look(server, pool.family(), [pool.url])
            async with (
                Crowd(pool.url, "m", clients=500, pause=1.0) as crowd,
                Load(lambda: [pool.url], "m", clients=50, pause=0.1, seed=seed) as load,
            ):
                await asyncio.sleep(min(_LONGEST, seconds))
            part = Part("crosstalk", load.tally, Counter({"clients that went away": crowd.dropped}), before)
            part.after = await back_to(before, lambda: look(server, pool.family(), [pool.url]), 20)
        finally:
            (folder / "pool.log").write_text(pool.output)
            await asyncio.to_thread(pool.end)
            server.close()
    if load.tally.refused:
        part.failures.append(f"{load.tally.refused} were refused, and nothing was wrong with the queue")
    return part
