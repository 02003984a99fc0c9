"""A whole pool of real processes on a queue that can be broken, which one session of tests breaks again and again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Running

from .baseline import Baseline, look
from .load import Load
from .patience import until
from .processes import Pool, until_served
from .redis_server import RedisServer

SLOW = 0.05
"""Seconds that an item of the model `slow` takes."""


class Stack:
    """A queue of our own and `infinity serve` on it: model `m` with two workers, `slow` with one, and one API."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder)
        self.pool = Pool(
            *("--model", "dummy", "--served-model-name", "m", "--replicas", "2", "--engine", "dummy"),
            *("--model", f"dummy:{SLOW}", "--served-model-name", "slow", "--replicas", "1", "--engine", "dummy"),
            *("--redis-url", self.server.url),
        )
        self.url = self.pool.url

    def urls(self) -> list[str]:
        """Give the API to ask."""
        return [self.url]

    def look(self) -> Baseline:
        """Look at all there is."""
        return look(self.server, self.pool.family(), [self.url])

    async def whole(self) -> None:
        """Wait until all that a test broke is there again."""
        await until_served(self.url, "m", 2, 40)
        await until_served(self.url, "slow", 1, 40)
        await until(lambda: not self.server.ask("XLEN", "infinity:1:{slow}:jobs:online"), 40)

    async def warm(self) -> None:
        """Have everything opened and allocated that a little load needs."""
        for model, clients in (("m", 40), ("slow", 4)):
            async with Load(self.urls, model, clients=clients, pause=0.0) as load:
                await load.more(clients)

    def close(self) -> None:
        self.pool.end()
        self.server.close()


@pytest.fixture(scope="session")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("queue"))
    stack.pool.ready()
    asyncio.run(stack.warm())
    yield stack
    stack.close()


@pytest.fixture
async def stack(shared_stack: Stack) -> AsyncIterator[Stack]:
    """The stack, whole before the test and whole after it."""
    await shared_stack.whole()
    yield shared_stack
    await shared_stack.whole()


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start processes that are ended with the test, if they have not ended before."""
    started: list[Running] = []

    def begin(kind: type[Running], *arguments: str, **options: str) -> Running:
        started.append(kind(*arguments, **options))
        return started[-1]

    yield begin
    for each in started:
        each.end()
