"""What a Redis must be like, on real ones."""

from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.policy import check_queue


@pytest.fixture
def own() -> Iterator[EmbeddedServer]:
    """A server whose configuration the test may change."""
    with EmbeddedServer.start() as server:
        yield server


async def test_a_private_server_will_do_without_a_word(own: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    await check_queue(own.url)
    assert not caplog.text


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_one_that_drops_work_is_refused(own: EmbeddedServer, policy: str) -> None:
    async with connect(own.url) as redis:
        await redis.config_set("maxmemory-policy", policy)
    with pytest.raises(InvalidInput, match=f"noeviction, not {policy}") as refused:
        await check_queue(own.url)
    assert refused.value.param == "redis_url"


async def test_one_that_keeps_nothing_is_remarked_on(own: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    async with connect(own.url) as redis:
        port = await _listen(redis)
        await check_queue(f"redis://127.0.0.1:{port}")
        assert "appendonly yes" in caplog.text

        caplog.clear()
        await redis.config_set("appendonly", "yes")
        await check_queue(f"redis://127.0.0.1:{port}")
        assert not caplog.text


async def test_one_that_cannot_be_reached_yet_is_not_judged() -> None:
    await check_queue("redis://127.0.0.1:1")


async def _listen(redis: Redis) -> int:
    """Have a server listen on a free port too."""
    for port in range(20_000, 40_000, 997):
        try:
            await redis.config_set("port", port)
        except Exception:  # noqa: BLE001 - taken: the next may be free
            continue
        return port
    raise AssertionError("no free port")
