"""Random faults, one after another and two at a time, against a stack under steady mixed load."""

import asyncio
import random
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tests.chaos.direct import Direct
from tests.chaos.faults import FAULTS, Busy, Fault
from tests.chaos.report import Part
from tests.chaos.stack import MODEL, SLOTS, Stack
from tests.end_to_end.baseline import back_to
from tests.end_to_end.load import Load, Tally
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer

_PAUSE = (0.2, 2.5)  # s between the beginnings of two faults
_CALM = 30.0  # s in which all works again


async def storm(folder: Path, seconds: float, seed: int) -> Part:
    """Let faults come for so many seconds, and give an account of it."""
    server = RedisServer(folder, durable=True)
    async with Proxy(server.port) as proxy:
        stack = Stack(folder, proxy, server)
        try:
            return await _storm(stack, seconds, seed)
        finally:
            await stack.close()


async def _storm(stack: Stack, seconds: float, seed: int) -> Part:
    await asyncio.gather(*(stack.start_worker(slot) for slot in SLOTS))
    await asyncio.gather(*(stack.start_api(slot) for slot in SLOTS))
    await _under_load(stack, Tally(), 0.0, Counter(), seed)  # so that all is open and allocated
    before = await back_to(stack.look(), stack.look)
    tally, faults = Tally(), Counter[str]()
    await _under_load(stack, tally, seconds, faults, seed)
    part = Part("storm", tally, faults, before)
    await part.come_back(stack.look, growth=25.0)
    return part


async def _under_load(stack: Stack, tally: Tally, seconds: float, faults: Counter[str], seed: int) -> None:
    """Run the load, through HTTP and without, and let faults come meanwhile."""

    def killed(url: str) -> bool:
        return url in stack.killed

    async with AsyncExitStack() as running:
        online = Load(stack.urls, MODEL, clients=10, pause=0.04, patience=45, was_killed=killed, seed=seed)
        bulk = Load(stack.urls, MODEL, clients=3, pause=0.2, patience=45, most_items=200, was_killed=killed, seed=seed)
        direct = Direct(stack.server.url, MODEL, clients=4, pause=0.1)
        for load in (online, bulk, direct):
            await running.enter_async_context(load)
        await _let_come(stack, seconds, faults, random.Random(seed))
        await online.more(200, _CALM)
        await bulk.more(10, _CALM)
    for load in (online, bulk, direct):
        tally.add(load.tally)


async def _let_come(stack: Stack, seconds: float, faults: Counter[str], rng: random.Random) -> None:
    """Begin a fault every second or two, whether or not the last has passed; wait until all have."""
    began = time.monotonic()
    kinds, weights = list(FAULTS), list(FAULTS.values())
    async with asyncio.TaskGroup() as under_way:
        while (now := time.monotonic() - began) < seconds:
            [fault] = rng.choices(kinds, weights)
            under_way.create_task(_inject(fault, stack, faults, rng))
            await asyncio.sleep(rng.uniform(*_PAUSE) if now < seconds - 15 else seconds - now)


async def _inject(fault: Fault, stack: Stack, faults: Counter[str], rng: random.Random) -> None:
    name = fault.__name__.replace("_", " ")
    try:
        started = time.strftime("%H:%M:%S")
        await fault(stack, rng)
    except Busy:
        return
    faults[name] += 1
    print(f"{started} to {time.strftime('%H:%M:%S')} {name}", file=sys.stderr)  # noqa: T201 - a program's progress
