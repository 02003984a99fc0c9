"""A small worker without a model, on the real consumer and the real server."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from redis.exceptions import RedisError

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import connect
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import LANES, Failure, Job, Lane, Reply, Result
from infinity_pool.broker.presence import WorkerInfo, beat


def lengths(job: Job) -> Reply:
    """Answer each text with its length, and refuse "bad"."""
    if "bad" in job.items:
        return Failure(job.id, InvalidInput("this one is bad", param="input"))
    return Result(job.id, np.array([[len(item)] * 3 for item in job.items], np.float32), len(job.items))


class Echo:
    """Takes jobs of model `m` and answers them, until told to stop; `seen` are the jobs in the order they came."""

    def __init__(self, url: str, worker_id: str = "w1") -> None:
        self.consumer = Consumer(url, "m", worker_id)
        self.redis = connect(url)
        self.seen: list[Job] = []
        self.open = asyncio.Event()
        self.open.set()
        self.running = True

    async def start(self) -> None:
        await beat(self.redis, WorkerInfo(id=self.consumer.id, model="m", state="ready"))
        await self.consumer.join()

    async def run(self, lane: Lane) -> None:
        while self.running:
            await self.open.wait()
            try:
                await self.answer(await self.consumer.take(lane, 1000))
            except RedisError:
                await self.answer(await self.consumer.recover(lane, []))

    async def close(self) -> None:
        await self.consumer.close()
        await self.redis.aclose()

    async def answer(self, taken: list[Delivery]) -> None:
        jobs = [(one, one.job) for one in taken if one.job]
        self.seen += [job for _, job in jobs]
        await self.open.wait()
        if jobs:
            await self.consumer.answer([(one, lengths(job)) for one, job in jobs])


@pytest.fixture
async def echo(redis_url: str) -> AsyncIterator[Echo]:
    worker = Echo(redis_url)
    await worker.start()
    tasks = [asyncio.create_task(worker.run(lane)) for lane in LANES]
    yield worker
    worker.running = False
    worker.open.set()
    await asyncio.gather(*tasks)
    await worker.close()


@pytest.fixture
async def client(redis_url: str, echo: Echo) -> AsyncIterator[QueueClient]:
    async with QueueClient(redis_url, timeout=5) as client:
        yield client
