"""The queue stops, comes back with and without its data, refuses writes, hangs, cuts connections: who waits is told."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infinity_pool.broker import keys
from infinity_pool.broker.presence import EXPIRY

from .baseline import back_to
from .conftest import Stack
from .load import Load, Tally, at_once, embed
from .patience import until
from .processes import Api, Worker, until_served
from .redis_server import RedisServer

REFUSED_WITHIN = 8.0  # s
BACK_WITHIN = 20.0  # s


def only_refused(tally: Tally) -> bool:
    """Say whether all that was not answered was refused with 503, in time."""
    return set(tally.refused) <= {503} and not tally.lost + tally.broken + tally.wrong


async def recovers(stack: Stack, load: Load) -> None:
    """Wait until the load is answered again, look at what became of it so far, and see that no more is refused."""
    await load.more(50, BACK_WITHIN)
    tally = load.lap()
    assert only_refused(tally), tally
    assert tally.longest_refusal < REFUSED_WITHIN, tally
    await load.more(100)
    assert not load.tally.refused, load.tally


@pytest.fixture(autouse=True)
def same_processes(shared_stack: Stack) -> Iterator[None]:
    """Nothing of ours needs to be started again for an outage's sake."""
    pids = shared_stack.pool.pids()
    yield
    assert shared_stack.pool.pids() == pids


@pytest.mark.parametrize("seconds", [2, 10])
async def test_it_stops_and_comes_back_empty(stack: Stack, seconds: float) -> None:
    before = stack.look()
    async with Load(stack.urls, "m") as load:
        stack.server.kill()
        await asyncio.sleep(seconds)
        stack.server.start()
        await recovers(stack, load)
    await back_to(before, stack.look)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, durable=True)
    yield server
    server.close()


async def test_it_comes_back_with_its_data(durable: RedisServer, start: Callable[..., Any]) -> None:
    """What was queued and held is answered after the outage, by who was there before it."""
    jobs = keys.jobs("m", "online")
    worker = start(Worker, durable.url, "m", model="dummy:0.02").ready()
    api = start(Api, durable.url).ready()
    await until_served(api.url, "m")
    calls = asyncio.gather(*(embed(api.url, ["x" * n] * 8) for n in range(1, 11)))
    await until(lambda: durable.ask("XLEN", jobs) == 10)
    durable.kill(signal.SIGTERM)
    await asyncio.sleep(1)
    durable.start()
    assert await asyncio.wait_for(calls, 15) == [200] * 10
    assert worker.process.poll() is None
    await until(lambda: durable.ask("XLEN", jobs) == 0)


async def test_it_comes_after_everybody_else(durable: RedisServer, start: Callable[..., Any]) -> None:
    """A model that took minutes to load is not loaded again because the queue was away for a moment."""
    durable.kill()
    worker, api = start(Worker, durable.url, "m"), start(Api, durable.url).ready()
    worker.expect("trouble with the queue")
    assert await embed(api.url, ["too early"]) == 503
    durable.start()
    await until_served(api.url, "m", patience=BACK_WITHIN)
    assert await embed(api.url, ["in time"]) == 200
    await until(lambda: durable.commands.xlen(keys.jobs("m", "online")) == 0)
    durable.kill()
    for each in (worker, api):
        each.process.terminate()
        assert each.wait() == 0, each.output
        assert "Traceback" not in each.output
    assert worker.output.count("warming up") == 1


async def test_it_hangs_with_connections_open(stack: Stack) -> None:
    taken_over = stack.pool.output.count("took over")
    async with Load(stack.urls, "m") as load:
        stack.server.freeze()
        await asyncio.sleep(5)
        stack.server.thaw()
        await recovers(stack, load)
    assert stack.pool.output.count("took over") == taken_over


async def test_it_is_emptied_while_idle(stack: Stack) -> None:
    stack.server.ask("FLUSHALL")
    statuses = await at_once(*(embed(stack.url, ["x" * n]) for n in range(1, 20)))
    assert set(statuses) <= {200, 503}
    await until_served(stack.url, "m", 2, BACK_WITHIN)
    assert await at_once(*(embed(stack.url, ["x" * n]) for n in range(1, 50))) == {200: 49}


async def test_it_is_emptied_under_load(stack: Stack) -> None:
    before = stack.look()
    async with Load(stack.urls, "m") as load, Load(stack.urls, "slow", clients=4) as slow:
        for _ in range(3):
            await load.more(50)
            stack.server.ask("FLUSHALL")
        await recovers(stack, load)
        await slow.more(5)
    assert only_refused(slow.tally), slow.tally
    await back_to(before, stack.look)


async def test_it_is_made_read_only(stack: Stack) -> None:
    """As an old master is when another took its place."""
    taken_over = stack.pool.output.count("took over")
    async with Load(stack.urls, "m") as load:
        stack.server.ask("REPLICAOF", "127.0.0.1", "1")
        await asyncio.sleep(8)  # longer than a silent worker is suffered: all are silent, and none is at fault
        stack.server.ask("REPLICAOF", "NO", "ONE")
        await recovers(stack, load)
    assert stack.pool.output.count("took over") == taken_over


async def test_it_is_out_of_memory(stack: Stack) -> None:
    async with Load(stack.urls, "m") as load:
        stack.server.ask("CONFIG", "SET", "maxmemory", "1")
        await until(lambda: load.tally.refused[503])
        assert await at_once(*(embed(stack.url, ["x"]) for _ in range(50))) == {503: 50}
        stack.server.ask("CONFIG", "SET", "maxmemory", "0")
        await recovers(stack, load)


async def test_nobody_is_taken_for_dead_while_no_heartbeat_can_be_written(
    stack: Stack, start: Callable[..., Any]
) -> None:
    workers = [start(Worker, stack.server.url, "pair", model="dummy:0.02") for _ in range(2)]
    await until_served(stack.url, "pair", 2)
    calls = asyncio.gather(*(embed(stack.url, ["x" * n] * 8, "pair") for n in range(1, 21)))
    await until(lambda: stack.server.commands.xpending(keys.jobs("pair", "online"), keys.GROUP)["pending"] > 1)
    stack.server.ask("CONFIG", "SET", "maxmemory", "1")
    await asyncio.sleep(2 * EXPIRY)
    stack.server.ask("CONFIG", "SET", "maxmemory", "0")
    assert await calls == [200] * 20
    assert not any("took over" in worker.output for worker in workers)


async def test_its_connections_are_cut(stack: Stack) -> None:
    async with Load(stack.urls, "m") as load, Load(stack.urls, "slow", clients=4) as slow:
        for _ in range(5):
            await load.more(50)
            stack.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            stack.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await slow.more(5)
    assert load.tally.flawless(), load.tally
    assert slow.tally.flawless(), slow.tally


async def test_a_read_that_waits_longer_than_the_socket_may_is_no_error(
    stack: Stack, start: Callable[..., Any]
) -> None:
    url = f"{stack.server.url}?socket_timeout=1"
    worker, api = start(Worker, url, "idle").ready(), start(Api, url).ready()
    await until_served(api.url, "idle")
    lines = worker.output.count("\n"), api.output.count("\n")
    await asyncio.sleep(2)
    assert await embed(api.url, ["after a while"], "idle") == 200
    assert (worker.output.count("\n"), api.output.count("\n")) == lines, worker.output + api.output
