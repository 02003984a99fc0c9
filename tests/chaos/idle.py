"""Nothing at all happens for a while; then somebody asks."""

import asyncio
from pathlib import Path

from tests.chaos.report import Part
from tests.end_to_end.load import Load
from tests.end_to_end.processes import Pool

_LONGEST = 180.0  # s, longer than the timeouts of sockets, and of most that stand between them
_NORMAL = 1.0  # s


async def idle(folder: Path, seconds: float, seed: int) -> Part:
    """The first answer afterwards comes as soon as any, from the same processes, and no log has a word about it."""
    pool = Pool("--model", "dummy", "--engine", "dummy", "--served-model-name", "m")
    try:
        await asyncio.to_thread(pool.ready)
        async with Load(lambda: [pool.url], "m", clients=4) as load:
            await load.more(20)
        said, pids = pool.output, pool.pids()
        await asyncio.sleep(min(_LONGEST, 0.3 * seconds))
        async with Load(lambda: [pool.url], "m", clients=1, seed=seed) as load:
            await load.more(1)
        part = Part("idle", load.tally)
        if load.tally.longest > _NORMAL:
            part.failures.append(f"the first answer took {load.tally.longest:.1f} s")
        if pool.output != said:
            part.failures.append(f"it was remarked on: {pool.output.removeprefix(said)}")
        if pool.pids() != pids:
            part.failures.append("processes were started again")
    finally:
        (folder / "pool.log").write_text(pool.output)
        await asyncio.to_thread(pool.end)
    return part
