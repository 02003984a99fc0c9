import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.messages import Job, Result, encode_job
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker, read_model

REPLIES = keys.replies("listener")


async def put(redis: Redis, *costs: int, lane: str = "online", ttl_ms: int | None = None) -> list[str]:
    """Queue one job for each cost; gives their ids."""
    names = [keys.jobs("m", "online"), keys.jobs("m", "bulk"), keys.waiting("m")]
    ids = []
    for number, cost in enumerate(costs):
        job = Job(f"{lane}{number}", "embed", ["text"], {}, REPLIES, lane, cost, ttl_ms)  # type: ignore[arg-type]
        where = 1 if lane == "online" else 2
        await scripts.run(redis, "submit", names, [1e6, 1e9, 1, 1e9, where, cost, 1, encode_job(job)])
        ids.append(job.id)
    return ids


@asynccontextmanager
async def member(url: str, redis: Redis, name: str = "w1") -> AsyncIterator[Consumer]:
    consumer = Consumer(url, "m", name)
    await beat(redis, WorkerInfo(id=name, model="m", state="ready"), expiry=60.0)
    await consumer.join()
    yield consumer
    await consumer.close()


@pytest.fixture
async def consumer(redis_url: str, redis: Redis) -> AsyncIterator[Consumer]:
    async with member(redis_url, redis) as consumer:
        yield consumer


async def test_a_take_ends_when_its_budget_is_spent(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 10, 10, 10, 10)

    assert [one.cost for one in await consumer.take("online", 25)] == [10, 10, 10]
    assert [one.cost for one in await consumer.take("online", 25)] == [10]


async def test_a_take_waits_for_the_first(consumer: Consumer, redis: Redis) -> None:
    started = time.monotonic()

    assert await consumer.take("online", 25) == []
    assert 0.4 < time.monotonic() - started < 1.0


async def test_lanes_are_apart(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 1, lane="bulk")
    await put(redis, 2)

    assert [one.cost for one in await consumer.take("online", 25)] == [2]
    assert [one.cost for one in await consumer.take("bulk", 25)] == [1]


async def test_an_answer_is_sent_and_the_job_forgotten(consumer: Consumer, redis: Redis) -> None:
    await redis.xadd(REPLIES, {"made": ""})
    [job_id] = await put(redis, 5)
    [delivery] = await consumer.take("online", 25)

    await consumer.answer([(delivery, Result(job_id, [1.0], 1))])

    assert await redis.xlen(REPLIES) == 2
    assert await redis.xlen(keys.jobs("m", "online")) == 0
    assert (await read_model(redis, "m")).waiting["online"].tokens == 0


async def test_a_listener_that_is_gone_leaves_no_channel_behind(consumer: Consumer, redis: Redis) -> None:
    [job_id] = await put(redis, 5)
    [delivery] = await consumer.take("online", 25)

    await consumer.answer([(delivery, Result(job_id, [1.0], 1))])

    assert not await redis.exists(REPLIES)


async def test_answering_twice_counts_once(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 5, 7)
    first, second = await consumer.take("online", 25)

    await consumer.forget([first])
    await consumer.forget([first])

    assert (await read_model(redis, "m")).waiting["online"].tokens == 7
    assert second.cost == 7


async def test_what_was_sent_and_never_arrived_is_sent_again(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 1, 2, 3)
    first, *_ = await consumer.take("online", 25)

    lost = await consumer.recover("online", [first.entry])

    assert [one.cost for one in lost] == [2, 3]
    assert not any(one.orphan for one in lost)


async def test_a_group_that_was_lost_is_made_anew(consumer: Consumer, redis: Redis) -> None:
    await redis.flushall()

    assert await consumer.recover("online", []) == []
    await put(redis, 4)
    assert [one.cost for one in await consumer.take("online", 25)] == [4]


async def test_the_dead_are_reaped_and_the_living_are_not(consumer: Consumer, redis_url: str, redis: Redis) -> None:
    async with member(redis_url, redis, "w2") as other:
        await put(redis, 1, 2)
        await other.take("online", 25)

        assert await consumer.dead("online") == []
        assert await consumer.reap("online", "w2") == []  # its heartbeat is there, whoever says otherwise
        await forget_worker(redis, "m", "w2")
        assert await consumer.dead("online") == ["w2"]
        assert await consumer.dead("bulk") == []
        taken = await consumer.reap("online", "w2")

        assert [one.cost for one in taken] == [1, 2]
        assert all(one.orphan for one in taken)
        assert await consumer.reap("online", "w2") == []
        assert await consumer.dead("online") == []


async def test_two_reapers_do_not_both_win(consumer: Consumer, redis_url: str, redis: Redis) -> None:
    async with member(redis_url, redis, "w2") as dead, member(redis_url, redis, "w3") as rival:
        await put(redis, *range(1, 11))
        await dead.take("online", 1000)
        await forget_worker(redis, "m", "w2")

        mine = await consumer.reap("online", "w2", most=6)
        theirs = await rival.reap("online", "w2", most=6)

        assert len(mine) + len(theirs) == 10
        assert not {one.entry for one in mine} & {one.entry for one in theirs}


async def test_a_worker_that_holds_something_does_not_vanish(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 1)
    await consumer.take("online", 25)

    assert await consumer.leave() == 1
    names = [row["name"] for row in await redis.xinfo_consumers(keys.jobs("m", "online"), keys.GROUP)]
    assert names == [b"w1"]


async def test_trimmed_entries_do_not_come_back_as_ghosts(consumer: Consumer, redis_url: str, redis: Redis) -> None:
    async with member(redis_url, redis, "w2") as other:
        await put(redis, 1, 2)
        await other.take("online", 25)
        await redis.xtrim(keys.jobs("m", "online"), maxlen=0, approximate=False)
        await forget_worker(redis, "m", "w2")

        assert await consumer.reap("online", "w2") == []
        assert await consumer.reap("online", "w2") == []
        assert (await redis.xpending(keys.jobs("m", "online"), keys.GROUP))["pending"] == 0


async def test_the_age_of_a_job_counts_from_when_it_was_queued(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 1, ttl_ms=10_000)

    [one] = await consumer.take("online", 25)

    assert one.deadline is not None
    assert 9.0 < one.deadline - time.monotonic() <= 10.0


async def test_an_entry_that_is_no_job_is_still_delivered_to_be_removed(consumer: Consumer, redis: Redis) -> None:
    stream = keys.jobs("m", "online")
    await redis.xadd(stream, {"c": 1, "n": 1, "j": msgpack.packb([1])})

    [one] = await consumer.take("online", 25)
    assert one.job is None
    await consumer.forget([one])
    assert await redis.xlen(stream) == 0


async def test_starts_are_counted_until_the_job_is_done(consumer: Consumer, redis: Redis) -> None:
    await put(redis, 1)
    [one] = await consumer.take("online", 25)

    assert [await consumer.start(one), await consumer.start(one)] == [1, 2]
    await consumer.bury(one, "its worker died")
    await consumer.forget([one])

    assert not await redis.exists(keys.attempts("m"))
    [(_, letter)] = await redis.xrange(keys.dead("m"))  # type: ignore[misc] # redis-py allows for None
    assert letter[b"reason"] == b"its worker died"  # type: ignore[index]


async def test_a_job_that_would_have_us_write_elsewhere_is_no_job(consumer: Consumer, redis: Redis) -> None:
    job = Job("j", "embed", ["text"], {}, keys.models(), "online", 1)
    await redis.xadd(keys.jobs("m", "online"), {"c": 1, "n": 1, "j": encode_job(job)})

    [one] = await consumer.take("online", 25)

    assert one.job is None


async def test_a_reply_channel_that_is_something_else_holds_nobody_up(consumer: Consumer, redis: Redis) -> None:
    await redis.rpush(REPLIES, "not a stream")
    ids = await put(redis, 5)
    [delivery] = await consumer.take("online", 25)

    await consumer.answer([(delivery, Result(ids[0], [1.0], 1))])

    assert await redis.xlen(keys.jobs("m", "online")) == 0
