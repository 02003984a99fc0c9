from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.fitness import check_server
from tests.broker.deployments import free_port, server


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Redis]:
    """A server whose settings may be changed."""
    port = free_port()
    with server(tmp_path / "redis", "--port", str(port), "--appendonly", "yes", await_port=port):
        async with connect(f"redis://127.0.0.1:{port}") as redis:
            yield redis


async def test_a_server_that_keeps_all_is_fit(own: Redis, caplog: pytest.LogCaptureFixture) -> None:
    await own.config_set("maxmemory", "100mb")

    await check_server(own)

    assert caplog.text == ""


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_is_not(own: Redis, policy: str) -> None:
    await own.config_set("maxmemory", "100mb")
    await own.config_set("maxmemory-policy", policy)

    with pytest.raises(InvalidInput, match=policy) as caught:
        await check_server(own)
    assert caught.value.param == "redis_url"


async def test_what_is_unwise_is_said(own: Redis, caplog: pytest.LogCaptureFixture) -> None:
    await own.config_set("maxmemory-policy", "allkeys-lru")
    await own.config_set("appendonly", "no")

    await check_server(own)

    assert "allkeys-lru" in caplog.text
    assert "appendonly" in caplog.text
