"""A whole worker in this process, on the real queue, with engines that break on purpose."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.errors import DeadLettered, DeadlineExceeded, InvalidInput, WorkerFailed
from infinity_pool.broker.messages import Array
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker
from infinity_pool.workers.engines.dummy import DummyEngine
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.faults import OutOfMemory
from infinity_pool.workers.interface import Batch, ModelFiles, Reduce
from infinity_pool.workers.loop.allowance import Allowance
from infinity_pool.workers.loop.batching import Batcher, Budget
from infinity_pool.workers.loop.held import Unit
from infinity_pool.workers.loop.holdings import Holdings
from infinity_pool.workers.loop.intake import Intake
from infinity_pool.workers.loop.preprocess import Preprocessor
from infinity_pool.workers.loop.worker import Worker
from infinity_pool.workers.measuring.meter import Meter

FILES = ModelFiles(Path(), {}, "dummy")
POISON = 666  # characters


class Breaking(DummyEngine):
    """Raises on any batch with a text of POISON characters; `gate` holds batches back, `batches` remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []
        self.seconds = 0.0
        self.memory = 10_000  # items
        self.entered = 0

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        self.entered += 1
        time.sleep(self.seconds)
        self.batches.append(batch["chars"].tolist())
        if len(batch["chars"]) > self.memory:
            raise OutOfMemory
        if POISON in batch["chars"]:
            raise RuntimeError("this one breaks the network")
        return super().run(batch, reduce)


class Running:
    """A worker named `w1` of model `m`, its engine, and what it measured."""

    def __init__(self, url: str, redis: Redis, family: Dummy | None = None) -> None:
        family = family or Dummy(FILES)
        self.redis = redis
        self.tasks = [*family.tasks]
        self.engine = Breaking()
        self.meter = Meter("m", lambda: len(self.holdings))
        self.holdings = Holdings(10_000)
        self.consumer = Consumer(url, "m", "w1")
        self.preprocessor = Preprocessor("dummy", FILES, 0, family)
        self.worker = Worker(
            self.consumer,
            self.preprocessor,
            family,
            self.engine,
            Batcher[Unit](Budget(10_000, 10_000)),
            self.holdings,
            self.meter,
        )
        self.intake = Intake(url, self.consumer, self.holdings, self.worker.accept)

    async def run(self) -> None:
        await self.beat()
        await self.consumer.join()
        running = asyncio.create_task(self.worker.run())
        await self.intake.run()
        self.worker.end()
        await running

    async def beat(self) -> None:
        await beat(self.redis, WorkerInfo(id="w1", model="m", state="ready", tasks=self.tasks, max_length=512))


@asynccontextmanager
async def runs(running: Running) -> AsyncIterator[None]:
    """Have a worker run for a while, and end with nothing left."""
    task = asyncio.create_task(running.run())
    beating = asyncio.create_task(_forever(running.beat))
    yield
    running.intake.stop()
    async with asyncio.timeout(5):
        await task
    beating.cancel()
    assert await running.consumer.leave() == 0
    running.preprocessor.close()


@pytest.fixture
async def running(redis_url: str, redis: Redis) -> AsyncIterator[Running]:
    running = Running(redis_url, redis)
    async with runs(running):
        yield running


async def _forever(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(0.3)


@pytest.fixture
async def client(redis_url: str, running: Running) -> AsyncIterator[QueueClient]:
    async with QueueClient(redis_url, timeout=5) as client:
        while not client.best("m"):
            await client.models()
        yield client


async def test_each_gets_its_own_whatever_it_is_batched_with(client: QueueClient, running: Running) -> None:
    rows = await asyncio.gather(*(client.embed("m", ["x" * n, "x" * (3 * n)]) for n in range(1, 200)))

    assert [row[:, 0].tolist() for row in rows] == [[n, 3 * n] for n in range(1, 200)]
    assert len(running.engine.batches) < 199


async def test_what_a_jobs_time_went_into_is_said(client: QueueClient, running: Running) -> None:
    running.engine.seconds = 0.05
    started = time.monotonic()

    result = await client.submit("m", "embed", ["a", "b"])

    assert result.times is not None
    assert all(part >= 0 for part in result.times)
    assert 50 <= result.times.ran <= sum(result.times) <= 1000 * (time.monotonic() - started) + 1


async def test_tokens_of_a_model_without_a_tokenizer_are_refused(client: QueueClient, running: Running) -> None:
    for task in ("tokenize", "decode"):
        with pytest.raises(InvalidInput, match=f"cannot {task}"):
            await client.submit("m", task, ["a"])
    assert running.engine.entered == 0


async def test_one_bad_item_fails_alone_and_its_neighbours_are_answered(client: QueueClient, running: Running) -> None:
    running.engine.seconds = 0.05  # so that those who come meanwhile share a batch
    texts = ["x" * n for n in range(1, 40)] + ["x" * POISON]

    answers = await asyncio.gather(*(client.embed("m", text) for text in texts), return_exceptions=True)

    assert [int(answer[0]) for answer in answers[:-1]] == list(range(1, 40))  # type: ignore[index]
    assert isinstance(answers[-1], WorkerFailed)
    assert any(len(batch) > 5 and POISON in batch for batch in running.engine.batches)
    assert (await client.embed("m", "after"))[0] == 5


async def test_a_device_without_room_gets_smaller_batches(client: QueueClient, running: Running) -> None:
    running.engine.memory = 5

    rows = await client.embed("m", ["x" * 40] * 64, lane="online")

    assert len(rows) == 64
    running.engine.batches.clear()
    await client.embed("m", ["x" * 40] * 64, lane="online")
    assert max(map(len, running.engine.batches)) <= 5  # it has learnt: nothing is tried in vain


async def test_a_bad_item_is_named_by_its_place_in_the_request(client: QueueClient, running: Running) -> None:
    texts = ["x"] * 150
    texts[123] = "x" * POISON

    with pytest.raises(WorkerFailed, match="item 123") as caught:
        await client.embed("m", texts)
    assert caught.value.item == 123


async def test_one_bad_job_in_a_take_fails_alone_in_preparation(client: QueueClient, running: Running) -> None:
    answers = await asyncio.gather(
        client.submit("m", "embed", ["good"]),
        client.submit("m", "embed", [b"no text"]),
        client.submit("m", "rerank", ["good"]),
        client.submit("m", "embed", ["good"], options={"dimensions": 99}),
        client.submit("m", "embed", ["fine"]),
        return_exceptions=True,
    )

    assert all(isinstance(answer, InvalidInput) for answer in answers[1:4])
    assert [getattr(answer, "param", None) for answer in answers[2:4]] == ["task", "dimensions"]
    assert not isinstance(answers[0], BaseException)
    assert not isinstance(answers[4], BaseException)


async def test_a_little_of_a_key_runs_before_the_much_of_others(client: QueueClient, running: Running) -> None:
    small = Budget(10)
    running.worker._batcher, running.worker._allowance = Batcher[Unit](small), Allowance(small)
    running.engine.seconds = 0.02
    much = asyncio.create_task(client.embed("m", ["x" * 40] * 60, lane="online"))
    while not running.engine.entered:
        await asyncio.sleep(0.001)

    await client.submit("m", "embed", ["x" * 20], key="quiet")

    assert [20] in running.engine.batches[:20]
    assert len(await much) == 60


async def test_bulk_batches_are_short_once_somebody_waits(client: QueueClient, running: Running) -> None:
    full = Budget(800)
    running.worker._batcher, running.worker._allowance = Batcher[Unit](full), Allowance(full)

    await client.embed("m", ["x" * 40] * 60, lane="bulk")
    assert max(map(len, running.engine.batches)) > 10
    await client.embed("m", "online")
    running.engine.batches.clear()
    await client.embed("m", ["x" * 40] * 60, lane="bulk")

    assert max(map(len, running.engine.batches)) == 10  # an eighth of 800 tokens


async def test_expired_jobs_are_not_run(client: QueueClient, running: Running) -> None:
    running.engine.seconds = 0.5
    first = asyncio.create_task(client.embed("m", "first"))
    while not running.engine.entered:
        await asyncio.sleep(0.01)

    with pytest.raises(DeadlineExceeded):
        await client.embed("m", "too late", timeout=0.2)
    await first
    running.engine.seconds = 0.0
    await client.embed("m", "next")

    assert len("too late") not in [length for batch in running.engine.batches for length in batch]


async def test_what_a_caller_left_is_not_run(client: QueueClient, running: Running) -> None:
    running.engine.seconds = 1.5  # in which the others come and go
    first = asyncio.create_task(client.embed("m", "first"))
    while not running.engine.entered:
        await asyncio.sleep(0.01)
    left = [asyncio.create_task(client.embed("m", "x" * 77)) for _ in range(20)]
    await asyncio.sleep(0.1)
    for call in left:
        call.cancel()
    await first
    running.engine.seconds = 0.0
    await client.embed("m", "next")

    assert 77 not in [length for batch in running.engine.batches for length in batch]
    async with asyncio.timeout(1):
        while len(running.holdings):  # an answer is sent before its job is let go
            await asyncio.sleep(0.01)


async def test_online_work_overtakes_a_backfill(client: QueueClient, running: Running) -> None:
    running.engine.seconds = 0.02
    backfill = asyncio.create_task(client.embed("m", ["x" * 200] * 3000, lane="bulk"))
    await asyncio.sleep(0.2)

    started = time.monotonic()
    await client.embed("m", "me first")

    assert time.monotonic() - started < 1
    assert not backfill.done()
    assert len(await backfill) == 3000


async def test_stopping_answers_all_that_was_taken(redis_url: str, redis: Redis) -> None:
    running = Running(redis_url, redis)
    running.engine.seconds = 0.2
    task = asyncio.create_task(running.run())
    async with QueueClient(redis_url, timeout=5) as client:
        while not client.best("m"):
            await client.models()
        calls = [asyncio.create_task(client.embed("m", "x" * n)) for n in range(1, 20)]
        while len(running.holdings) < 19:
            await asyncio.sleep(0.01)

        running.intake.stop()
        await task

        assert [int(row[0]) for row in await asyncio.gather(*calls)] == list(range(1, 20))
    assert await running.consumer.leave() == 0
    running.preprocessor.close()


@asynccontextmanager
async def a_dead_worker_with(
    client: QueueClient, url: str, redis: Redis, text: str
) -> AsyncIterator[asyncio.Task[Array]]:
    """Have another worker take a job and die of it, before the one under test could."""
    dead = Consumer(url, "m", "dead")
    await dead.join()
    await beat(redis, WorkerInfo(id="dead", model="m", state="ready"))
    taking = asyncio.create_task(dead.take("bulk", 10))
    call = asyncio.create_task(client.embed("m", text, lane="bulk", timeout=20))
    assert await taking
    await forget_worker(redis, "m", "dead")
    yield call
    await dead.close()


@asynccontextmanager
async def idle(redis_url: str, redis: Redis) -> AsyncIterator[tuple[Running, QueueClient]]:
    """Give a worker that does not run yet, and a client."""
    running = Running(redis_url, redis)
    await running.beat()
    async with QueueClient(redis_url, timeout=5) as client:
        await client.models()
        yield running, client
    await running.consumer.leave()
    running.preprocessor.close()


async def test_a_dead_workers_jobs_are_taken_over(redis_url: str, redis: Redis) -> None:
    async with (
        idle(redis_url, redis) as (running, client),
        a_dead_worker_with(client, redis_url, redis, "four") as call,
    ):
        task = asyncio.create_task(running.run())
        beating = asyncio.create_task(_forever(running.beat))

        async with asyncio.timeout(10):
            assert (await call)[0] == 4

        names = [row["name"] for row in await redis.xinfo_consumers(keys.jobs("m", "bulk"), keys.GROUP)]
        while b"dead" in names:
            await asyncio.sleep(0.1)
            names = [row["name"] for row in await redis.xinfo_consumers(keys.jobs("m", "bulk"), keys.GROUP)]
        running.intake.stop()
        await task
        beating.cancel()


async def test_a_job_that_was_started_often_enough_is_a_dead_letter(redis_url: str, redis: Redis) -> None:
    async with (
        idle(redis_url, redis) as (running, client),
        a_dead_worker_with(client, redis_url, redis, "boom") as call,
    ):
        [row] = await redis.xpending_range(keys.jobs("m", "bulk"), keys.GROUP, "-", "+", 10)
        await redis.hset(keys.attempts("m"), row["message_id"], 2)  # two orphan starts
        task = asyncio.create_task(running.run())
        beating = asyncio.create_task(_forever(running.beat))

        with pytest.raises(DeadLettered):
            async with asyncio.timeout(10):
                await call

        assert await redis.xlen(keys.dead("m")) == 1
        assert not await redis.exists(keys.attempts("m"))
        assert running.engine.batches == []
        running.intake.stop()
        await task
        beating.cancel()


async def test_the_meter_counts_what_was_run(client: QueueClient, running: Running) -> None:
    await client.embed("m", ["x" * 40, "x" * 80])
    while running.meter.items_done < 2:
        await asyncio.sleep(0.01)

    assert running.meter.tokens_done == 30
    assert running.meter.tokens_per_char != 0.3
    assert np.isfinite(running.meter.tokens_per_second)
