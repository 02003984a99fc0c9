"""What all tests share: a real server of their own."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer

collect_ignore = [] if "STS" in os.environ else ["quality"]  # it needs a data set that is not ours to ship


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One embedded server for the whole session."""
    with EmbeddedServer.start() as server:
        yield server


@pytest.fixture
async def redis_url(server: EmbeddedServer) -> AsyncIterator[str]:
    """The URL of an empty server."""
    async with connect(server.url) as redis:
        await redis.flushall()
        yield server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A connection to an empty server."""
    async with connect(redis_url) as redis:
        yield redis
