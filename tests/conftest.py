"""What all tests share: a real server of their own."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer

collect_ignore = [] if "STS" in os.environ else ["quality"]  # it needs a data set that is not ours to ship


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of one server for the whole session: the embedded one, or another that may be emptied."""
    if url := os.environ.get("INFINITY_TEST_REDIS_URL"):
        yield url
        return
    with EmbeddedServer.start() as server:
        yield server.url


@pytest.fixture
async def redis_url(server_url: str) -> AsyncIterator[str]:
    """The URL of an empty server."""
    async with connect(server_url) as redis:
        await redis.flushall()
        yield server_url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A connection to an empty server."""
    async with connect(redis_url) as redis:
        yield redis
