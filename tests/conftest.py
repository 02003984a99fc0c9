"""What all tests share: a real server of their own."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer

_ALONE = (
    *("api/test_deadlines", "api/test_overload", "cli/test_sharing", "end_to_end/test_fairness"),
    *("broker/test_client", "broker/test_consumer", "workers/engines/test_dummy", "workers/loop/test_worker"),
)
"""Tests that measure time: they have the machine to themselves."""

_TIMED = (
    *("api/clients/test_clients", "api/test_front_door", "api/test_openapi", "api/test_readiness"),
    *("broker/test_losses", "broker/test_presence"),
    *("cli/test_dead", "cli/test_lone_worker", "cli/test_metrics", "cli/test_serve", "cli/test_stuck", "end_to_end/"),
    *("workers/device/test_sharing", "workers/supervision/test_signs", "workers/supervision/test_supervise"),
)
"""Tests that wait for processes to live and die: what computes beside them would have them wait too long."""

collect_ignore = [] if "STS" in os.environ else ["quality"]  # it needs a data set that is not ours to ship


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that measure time, and those that wait."""
    root = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(root).as_posix()
        if place.startswith(_ALONE):
            item.add_marker(pytest.mark.alone)
        elif place.startswith(_TIMED):
            item.add_marker(pytest.mark.timed)


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
