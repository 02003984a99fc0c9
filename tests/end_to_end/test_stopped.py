"""Workers that are stopped or slow: the first count as dead, the second are never robbed."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import psutil

from infinity_pool.broker import keys
from infinity_pool.broker.presence import EXPIRY

from .baseline import back_to
from .conftest import Stack
from .load import Load, at_once, embed
from .patience import PROMPT, until
from .processes import Worker, until_served

Start = Callable[..., Any]


def process(worker: Worker) -> psutil.Process:
    return psutil.Process(worker.process.pid)


async def test_a_stopped_workers_jobs_go_to_others_and_its_late_answers_nowhere(stack: Stack, start: Start) -> None:
    workers = [start(Worker, stack.server.url, "halves", model="dummy:0.02") for _ in range(2)]
    await until_served(stack.url, "halves", 2)
    async with Load(stack.urls, "halves") as load:
        await load.more(20)
        before = stack.look()
        process(workers[0]).suspend()
        await load.more(20)
        await until(lambda: "took over" in workers[1].output)
        process(workers[0]).resume()
        await load.more(50)
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
    await back_to(before, stack.look)


async def test_a_slow_worker_is_not_robbed_however_long_its_batch_takes(stack: Stack, start: Start) -> None:
    seconds, items = 0.04, 64  # of one item, and in one job, which is one batch
    assert seconds * items > EXPIRY
    options = ("--batch-tokens", "100000")
    workers = [start(Worker, stack.server.url, "tortoise", *options, model=f"dummy:{seconds}") for _ in range(2)]
    await until_served(stack.url, "tortoise", 2)

    statuses = await at_once(*(embed(stack.url, ["x" * 8] * items, "tortoise") for _ in range(2)))

    assert statuses == {200: 2}
    assert not any("took over" in worker.output for worker in workers)
    assert await items_done(stack, "tortoise") == 2 * items, "something was run twice"


async def items_done(stack: Stack, model: str) -> int:
    """Give the items that a model's workers have run, as they told with their last heartbeats."""
    await asyncio.sleep(0.6)
    async with aiohttp.ClientSession(stack.url) as session, session.get(f"/v1/models/{model}") as response:
        return sum(worker["items_done"] for worker in (await response.json())["workers"])


async def test_jobs_that_another_took_off_the_queue_end_with_their_deadline(stack: Stack, start: Start) -> None:
    """As by an operator's XTRIM: there are no ghosts, nothing is counted for ever, and the workers go on."""
    worker = start(Worker, stack.server.url, "trimmed").ready()
    await until_served(stack.url, "trimmed")
    before = stack.look()
    process(worker).suspend()
    headers = {"X-Request-Timeout": "3"}
    calls = at_once(*(embed(stack.url, ["x" * n], "trimmed", headers=headers) for n in range(1, 21)))
    asked = asyncio.create_task(calls)
    stream = keys.jobs("trimmed", "online")
    await until(lambda: stack.server.ask("XLEN", stream) == 20)
    stack.server.ask("XTRIM", stream, "MAXLEN", 0)
    process(worker).resume()

    statuses = await asked
    assert set(statuses) <= {200, 503, 504}
    assert worker.process.poll() is None
    assert await embed(stack.url, ["and so on"], "trimmed") == 200
    await back_to(before, stack.look)


async def test_liveness_and_readiness_tell_apart_a_process_and_what_it_needs(stack: Stack, start: Start) -> None:
    worker = start(Worker, stack.server.url, "sleeper").ready()
    await until_served(stack.url, "sleeper")
    process(worker).suspend()
    async with aiohttp.ClientSession(stack.url) as session:

        async def unready() -> bool:
            async with session.get("/ready", params={"model": "sleeper"}) as response:
                return response.status == 503 and "sleeper" in await response.text()

        assert await until(unready) < EXPIRY + 2
        async with session.get("/health") as response:
            assert response.status == 200
        assert await embed(stack.url, ["nobody is there"], "sleeper", timeout=2) == 503
        process(worker).resume()
        await until_served(stack.url, "sleeper")
    assert await embed(stack.url, ["back again"], "sleeper") == 200
