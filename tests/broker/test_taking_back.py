"""Jobs whose callers have gone are taken off the queue, however much else there is to write."""

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.presence import WorkerInfo, beat
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer


async def test_under_load_what_is_left_is_taken_back_at_once(tmp_path: Path) -> None:
    """On a long wire a write is always under way, and the next one's jobs are there when it ends."""
    server = RedisServer(tmp_path)
    async with Proxy(server.port, 0.02) as proxy, Redis.from_url(server.url) as redis:
        await beat(redis, WorkerInfo(id="w", model="m", state="ready"))
        async with QueueClient(proxy.url) as client:
            await client.models()
            going = asyncio.create_task(keep_asking(client))
            left = [asyncio.create_task(client.embed("m", "left")) for _ in range(10)]
            while await redis.xlen(keys.jobs("m", "online")) < 10:
                await asyncio.sleep(0.01)
            for call in left:
                call.cancel()
            async with asyncio.timeout(2):
                while queued(server, b"left"):
                    await asyncio.sleep(0.02)
            assert not going.done()
            going.cancel()
    server.close()


def queued(server: RedisServer, text: bytes) -> int:
    """Count the jobs on the queue that have a text."""
    entries = server.ask("XRANGE", keys.jobs("m", "online"), "-", "+")
    return sum(text in fields[b"j"] for _, fields in entries)


async def keep_asking(client: QueueClient) -> None:
    """Submit a job every few milliseconds; nobody answers."""
    async with asyncio.TaskGroup() as calls:
        while True:
            calls.create_task(client.embed("m", "stays"))
            await asyncio.sleep(0.005)
