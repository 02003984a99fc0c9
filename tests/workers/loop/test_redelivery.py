"""Jobs that come to a worker a second time, or as it loses the queue."""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from infinity_pool.broker import keys
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.messages import Job
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker
from infinity_pool.workers.loop.allowance import Allowance
from infinity_pool.workers.loop.batching import Batcher, Budget
from infinity_pool.workers.loop.held import Unit
from tests.workers.loop.test_worker import Running, _forever, idle


async def test_an_orphan_of_many_batches_is_started_once(redis_url: str, redis: Redis) -> None:
    """Its start counts towards the dead letters, and its batches do not."""
    async with idle(redis_url, redis) as (running, client):
        small = Budget(10)
        running.worker._batcher, running.worker._allowance = Batcher[Unit](small), Allowance(small)
        dead = Consumer(redis_url, "m", "dead")
        await dead.join()
        await beat(redis, WorkerInfo(id="dead", model="m", state="ready"))
        taking = asyncio.create_task(dead.take("bulk", 10))
        call = asyncio.create_task(client.embed("m", ["x" * 40] * 30, lane="bulk", timeout=10))
        assert await taking
        await forget_worker(redis, "m", "dead")
        task, beating = asyncio.create_task(running.run()), asyncio.create_task(_forever(running.beat))

        rows = await call

        assert rows[:, 0].tolist() == [40] * 30
        assert len(running.engine.batches) == 30
        while await redis.exists(keys.attempts("m")):
            await asyncio.sleep(0.01)
        running.intake.stop()
        await task
        beating.cancel()
        await dead.close()


async def test_what_came_with_a_double_is_run_though_the_double_cannot_be_taken_off(tmp_path: Path) -> None:
    """The queue may go away in the midst of accepting; what is held then must not be left in no line for ever."""

    def delivery(entry: bytes, job_id: str, text: str) -> Delivery:
        return Delivery(entry, "online", Job(job_id, "embed", [text], {}, "nobody", "online", 1), 1, 1, 100, 0.0, None)

    with EmbeddedServer.start(tmp_path) as server:
        async with Redis.from_url(server.url) as redis:
            running = Running(server.url, redis)
            running.engine.seconds = 0.3
            task = asyncio.create_task(running.worker.run())
            await asyncio.sleep(0)
            await running.worker.accept([delivery(b"1-0", "first", "x" * 5)])
            assert server.process
            server.process.kill()
            server.process.wait()
            with pytest.raises(RedisError):
                await running.worker.accept([delivery(b"2-0", "new", "x" * 7), delivery(b"3-0", "first", "x" * 5)])
            server.launch()
            running.worker.end()
            async with asyncio.timeout(5):
                await task
            assert sorted(length for batch in running.engine.batches for length in batch) == [5, 7]
    await running.consumer.close()
    running.preprocessor.close()
