"""What a kill -9 costs: of any process but the API and the supervisor, nothing; of those, their own connections."""

import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Running

from .baseline import back_to
from .conftest import Stack
from .load import Load
from .patience import PROMPT, until
from .processes import Api, Pool, Worker, alive, until_served

DUMMY = ("--model", "dummy", "--engine", "dummy", "--served-model-name", "m")


@pytest.fixture
def pool(start: Callable[..., Any]) -> Any:
    """A pool on an embedded server, to be killed as a whole."""
    return start(Pool, *DUMMY).ready()


@pytest.mark.parametrize("part", ["worker", "preprocess"])
async def test_a_process_that_works(stack: Stack, part: str) -> None:
    before = stack.look()
    async with Load(stack.urls, "m") as load:
        await load.more(50)
        victim = stack.pool.workers("m")[0]
        if part == "preprocess":
            victim = next(child for child in victim.children() if "spawn_main" in " ".join(child.cmdline()))
        victim.kill()
        await load.more(300)
        await stack.whole()
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
    await back_to(before, stack.look)


async def test_the_embedded_server(pool: Pool) -> None:
    async with Load(lambda: [pool.url], "m") as load:
        await load.more(50)
        pids = pool.pids()
        pool.parts()["server"][0].kill()
        await load.more(300)
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
    assert {**pool.pids(), "server": []} == {**pids, "server": []}, "something else was started again"


async def test_an_api_breaks_its_own_connections_only(stack: Stack, start: Callable[..., Any]) -> None:
    api = start(Api, stack.server.url).ready()
    await until_served(api.url, "m")
    async with Load(stack.urls, "m") as load, Load(lambda: [api.url], "m") as unlucky:
        await load.more(50)
        api.process.kill()
        await until(lambda: unlucky.tally.broken)
        await load.more(100)
    assert load.tally.flawless(), load.tally
    assert not unlucky.tally.wrong + unlucky.tally.lost


async def test_the_supervisor_takes_everything_along(pool: Pool, start: Callable[..., Any]) -> None:
    family = pool.family()
    folder = Path(pool.queue_url().removeprefix("unix://")).parent
    async with Load(lambda: [pool.url], "m") as load:
        await load.more(50)
        pool.process.kill()
        await until(lambda: not alive(family), 5)
    assert not (folder / "redis.sock").exists()
    socket.create_server(("127.0.0.1", pool.port)).close()
    again = start(Running, "main", "serve", *DUMMY, "--port", str(pool.port))
    again.expect("Ctrl-C stops everything.")


async def test_one_of_two_workers_again_and_again(stack: Stack, start: Callable[..., Any]) -> None:
    def begin() -> Worker:
        worker: Worker = start(Worker, stack.server.url, "twins")
        return worker

    workers = [begin().ready(), begin().ready()]
    await until_served(stack.url, "twins", 2)
    rng = random.Random(11)
    async with Load(stack.urls, "twins", clients=24) as load:
        for _ in range(4):
            await load.more(rng.randint(1, 60))
            victim = workers.pop(rng.randrange(2))
            victim.process.kill()
            workers.append(begin().ready())
        await load.more(50)
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
