import asyncio
import time

import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import DeadlineExceeded, InvalidInput, ModelNotFound, Overloaded, Unavailable
from infinity_pool.broker.messages import LANES
from infinity_pool.broker.outbox import QueueLimits
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker, read_model
from tests.broker.conftest import Echo


async def test_a_text_a_list_and_a_long_list(client: QueueClient) -> None:
    assert (await client.embed("m", "four")).tolist() == [4, 4, 4]
    assert (await client.embed("m", ["a", "bc"])).tolist() == [[1, 1, 1], [2, 2, 2]]
    texts = ["x" * (n % 50) for n in range(500)]
    assert (await client.embed("m", texts))[:, 0].tolist() == [n % 50 for n in range(500)]


async def test_many_at_once_each_get_their_own(client: QueueClient) -> None:
    rows = await asyncio.gather(*(client.embed("m", "x" * n) for n in range(300)))

    assert [int(row[0]) for row in rows] == list(range(300))


async def test_a_client_on_an_open_connection(redis: Redis, echo: Echo) -> None:
    async with QueueClient(redis) as client:
        assert (await client.embed("m", "ab")).tolist() == [2, 2, 2]
    assert await redis.ping()


async def test_lanes_by_size_and_by_name(client: QueueClient, echo: Echo) -> None:
    await client.embed("m", ["a"] * 8)
    await client.embed("m", ["a"] * 9)
    await client.embed("m", "a", lane="bulk")
    await client.embed("m", ["a"] * 9, lane="online")

    assert [job.lane for job in echo.seen] == ["online", "bulk", "bulk", "online"]


async def test_only_the_online_lane_has_a_deadline_by_default(client: QueueClient, echo: Echo) -> None:
    await client.embed("m", "a")
    await client.embed("m", "a", lane="bulk")
    await client.embed("m", "a", lane="bulk", timeout=3)

    assert [job.ttl_ms for job in echo.seen] == [5000, None, 3000]


async def test_an_error_reaches_its_caller_alone(client: QueueClient) -> None:
    answers = await asyncio.gather(
        client.embed("m", "good"), client.embed("m", "bad"), client.embed("m", "fine"), return_exceptions=True
    )

    assert isinstance(answers[1], InvalidInput)
    assert answers[1].param == "input"
    assert not isinstance(answers[0], BaseException)
    assert not isinstance(answers[2], BaseException)


async def test_an_unknown_model_is_named_with_those_there_are(client: QueueClient) -> None:
    with pytest.raises(ModelNotFound, match=r"'other'.*there is: m"):
        await client.embed("other", "a")


@pytest.mark.parametrize("name", ["", "a b", "{x}", "x" * 300, "a\nb"])
async def test_a_name_that_cannot_be_one_is_not_found(client: QueueClient, name: str) -> None:
    with pytest.raises(ModelNotFound):
        await client.embed(name, "a")


async def test_nothing_to_run_is_refused(client: QueueClient) -> None:
    with pytest.raises(InvalidInput):
        await client.embed("m", [])


async def test_a_model_whose_workers_are_gone_is_unavailable(client: QueueClient, redis: Redis) -> None:
    await forget_worker(redis, "m", "w1")

    with pytest.raises(Unavailable) as caught:
        await asyncio.sleep(1.2)  # the snapshot is a second old at most
        await client.embed("m", "a")
    assert caught.value.retry_after


async def test_no_answer_in_time(client: QueueClient, echo: Echo, redis: Redis) -> None:
    echo.open.clear()
    started = time.monotonic()

    with pytest.raises(DeadlineExceeded):
        await client.embed("m", "a", timeout=0.3)

    assert time.monotonic() - started < 0.6
    assert client.waiting == 0


async def queued(redis: Redis) -> int:
    return int(await redis.xlen(keys.jobs("m", "online")))


async def test_a_cancelled_call_takes_its_job_back(client: QueueClient, echo: Echo, redis: Redis) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)  # the read under way ends; nothing is taken from now on
    calls = [asyncio.create_task(client.embed("m", "a")) for _ in range(20)]
    while await queued(redis) < 20:
        await asyncio.sleep(0.01)

    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    while await queued(redis):
        await asyncio.sleep(0.01)
    waiting = (await read_model(redis, "m")).waiting["online"]

    assert (waiting.items, waiting.tokens, waiting.bytes) == (0, 0, 0)
    assert client.waiting == 0
    echo.open.set()
    assert (await client.embed("m", "ok"))[0] == 2
    assert len(echo.seen) == 1


async def test_more_than_may_wait_is_refused_at_once(redis_url: str, echo: Echo) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)
    async with QueueClient(redis_url, limits=QueueLimits(items=10)) as client:
        calls = [asyncio.create_task(client.embed("m", "a")) for _ in range(10)]
        await asyncio.sleep(0.1)
        started = time.monotonic()
        with pytest.raises(Overloaded) as caught:
            await client.embed("m", "a")
        refused_after = time.monotonic() - started
        echo.open.set()
        await asyncio.gather(*calls)

    assert refused_after < 0.05
    assert caught.value.retry_after is not None
    assert "too much waits" in caught.value.message


async def test_what_would_come_too_late_is_refused_at_once(redis_url: str, echo: Echo) -> None:
    """At 1,000 tokens a second, 700 may wait before a job that has a second: a queue of more would be of late work."""
    echo.open.clear()
    await asyncio.sleep(0.6)
    await beat(echo.redis, WorkerInfo(id=echo.consumer.id, model="m", state="ready", tokens_per_second=1000.0))
    async with QueueClient(redis_url) as client:
        calls = [asyncio.create_task(client.embed("m", "x" * 1000, timeout=60)) for _ in range(2)]  # 302 tokens each
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded) as caught:
            await client.embed("m", "x" * 1000, timeout=1)
        calls.append(asyncio.create_task(client.embed("m", "x" * 1000, timeout=2)))
        await asyncio.sleep(0.1)
        echo.open.set()

        assert [len(row) for row in await asyncio.gather(*calls)] == [3, 3, 3]
    assert caught.value.retry_after is not None
    assert "time is too short" in caught.value.message


async def test_each_lane_has_its_own_time_to_come_again(redis_url: str, echo: Echo) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)
    await beat(echo.redis, WorkerInfo(id=echo.consumer.id, model="m", state="ready", tokens_per_second=1000.0))
    async with QueueClient(redis_url, limits=QueueLimits(items=10)) as client:
        calls = [
            asyncio.create_task(client.embed("m", ["x" * 1000] * 10, lane="bulk", timeout=99)),  # 3,020 tokens
            asyncio.create_task(client.embed("m", ["x" * 500] * 10, lane="online")),  # 1,520
        ]
        await asyncio.sleep(0.1)
        await client.models()
        waits = []
        for lane in LANES:
            with pytest.raises(Overloaded) as caught:
                await client.embed("m", "a", lane=lane, timeout=99)
            waits.append(caught.value.retry_after)
        echo.open.set()
        await asyncio.gather(*calls)

    assert waits == [1.52, 4.54]


async def test_who_has_no_deadline_waits_for_room(redis_url: str, echo: Echo) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)
    async with QueueClient(redis_url, limits=QueueLimits(items=10)) as client:
        calls = [asyncio.create_task(client.embed("m", ["ab"] * 10, lane="bulk")) for _ in range(5)]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
        echo.open.set()

        assert [len(rows) for rows in await asyncio.gather(*calls)] == [10] * 5


async def test_a_request_over_the_limit_is_taken_when_nothing_waits(redis_url: str, echo: Echo) -> None:
    async with QueueClient(redis_url, limits=QueueLimits(items=10)) as client:
        assert len(await client.embed("m", ["a"] * 25)) == 25


async def test_data_lost_by_the_server_is_queued_again(client: QueueClient, echo: Echo, redis: Redis) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)
    calls = [asyncio.create_task(client.embed("m", "x" * n)) for n in range(5)]
    while await queued(redis) < 5:
        await asyncio.sleep(0.01)

    await redis.flushall()
    await echo.start()
    echo.open.set()

    assert [int(row[0]) for row in await asyncio.gather(*calls)] == list(range(5))


async def test_nothing_is_left_behind(redis_url: str, redis: Redis, echo: Echo) -> None:
    async with QueueClient(redis_url) as client:
        await asyncio.gather(*(client.embed("m", "x" * n) for n in range(100)))
        channels = await redis.keys("infinity:*:replies:*")
        assert len(channels) == 1
        assert 0 < await redis.pttl(channels[0]) <= 15_000
    assert await redis.keys("infinity:*:replies:*") == []
    assert await queued(redis) == 0
    assert (await redis.xpending(keys.jobs("m", "online"), keys.GROUP))["pending"] == 0


async def test_a_server_that_cannot_be_reached_is_unavailable_within_five_seconds() -> None:
    async with QueueClient("redis://127.0.0.1:9/0") as client:
        started = time.monotonic()
        with pytest.raises(Unavailable):
            await client.embed("m", "a")
    assert time.monotonic() - started < 5


async def test_connections_are_given_back(redis_url: str, redis: Redis, echo: Echo) -> None:
    before = len(await redis.client_list())
    for _ in range(3):
        async with QueueClient(redis_url) as client:
            await asyncio.gather(*(client.embed("m", "x") for _ in range(50)))

    while len(await redis.client_list()) > before:
        await asyncio.sleep(0.01)


async def test_a_cut_connection_is_opened_again(client: QueueClient, redis_url: str, echo: Echo) -> None:
    other = connect(redis_url)
    for _ in range(5):
        mine = await other.client_id()
        for one in await other.client_list():
            if int(one["id"]) != mine and one["name"] != "x":
                await other.client_kill_filter(_id=one["id"])
        assert (await client.embed("m", "abc"))[0] == 3
    await other.aclose()


async def test_a_reply_channel_that_another_hand_replaced_is_made_anew(
    client: QueueClient, echo: Echo, redis: Redis
) -> None:
    [channel] = await redis.keys("infinity:*:replies:*")
    await redis.delete(channel)
    await redis.rpush(channel, "not a stream")

    await asyncio.sleep(1.5)  # its heartbeat comes every second

    assert (await client.embed("m", "abc"))[0] == 3
