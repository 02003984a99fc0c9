"""Inputs that break what runs them: they end, with an error for their caller, and hold up nobody else."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp

from infinity_pool.broker import keys

from .conftest import Stack
from .load import Load, embed
from .patience import until
from .processes import Worker, until_served

Start = Callable[..., Any]
MOST_STARTS = 3


async def test_a_job_that_kills_every_worker_is_a_dead_letter(stack: Stack, start: Start) -> None:
    """A worker is killed whenever it holds one certain job, which takes it a while; all others are answered."""

    def begin() -> Worker:
        worker: Worker = start(Worker, stack.server.url, "fragile", model="dummy:0.02")
        return worker

    worker, stream = begin().ready(), keys.jobs("fragile", "bulk")
    commands = stack.server.commands
    await until_served(stack.url, "fragile")
    async with Load(stack.urls, "fragile", clients=4, most_items=1) as load:
        poison = asyncio.create_task(embed_for_error(stack.url, ["poison"] * 64, "fragile"))
        await until(lambda: commands.xpending(stream, keys.GROUP)["pending"] == 1)
        [(entry, _)] = stack.server.ask("XRANGE", stream, "-", "+")
        for starts in range(1, MOST_STARTS):
            worker.process.kill()
            worker = begin().ready()
            await until(partial(has_begun, stack, entry, starts))
        worker.process.kill()
        worker = begin().ready()
        status, code = await poison
        await load.more(10)

    assert (status, code) == (500, "dead_lettered")
    assert load.tally.flawless(), load.tally
    assert stack.server.commands.xlen(keys.dead("fragile")) == 1
    assert stack.server.commands.xlen(stream) == 0
    assert stack.server.commands.hlen(keys.attempts("fragile")) == 0


def has_begun(stack: Stack, entry: bytes, times: int) -> bool:
    """Say whether an orphan has been started so many times."""
    return int(stack.server.commands.hget(keys.attempts("fragile"), entry) or 0) >= times


async def embed_for_error(url: str, texts: list[str], model: str) -> tuple[int, str]:
    """Embed once; gives the status and the error's code."""
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/embeddings", json={"model": model, "input": texts}) as response,
    ):
        return response.status, (await response.json()).get("error", {}).get("code", "")


async def test_garbage_on_the_queue_is_passed_over(stack: Stack) -> None:
    """Whatever an old version, or another program, has put where jobs and replies belong."""
    server, pids = stack.server, stack.pool.pids()
    channels = [key.decode() for key in server.ask("KEYS", "infinity:1:replies:*")]
    async with Load(stack.urls, "m") as load:
        for stream in (keys.jobs("m", "online"), keys.jobs("m", "bulk"), *channels):
            server.ask("XADD", stream, "*", "some", "thing")
            server.ask("XADD", stream, "*", "c", "1", "n", "1", "j", b"\xc1 no message")
            server.ask("XADD", stream, "*", "r", b"\xc1 no message")
            server.ask("XADD", stream, "*", "c", "many", "n", "some", "j", b"\x80")
            await load.more(100)
    assert load.tally.flawless(), load.tally
    assert await embed(stack.url, ["x" * 100] * 100) == 200
    await until(lambda: server.commands.xlen(keys.jobs("m", "online")) == 0)
    assert stack.pool.pids() == pids
