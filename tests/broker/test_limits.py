"""Limits that all replicas share, on a real server, with a clock that the test turns."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import Forbidden, Overloaded, QuotaExceeded, RateLimited, Unavailable
from infinity_pool.broker.limiting import Lease, Limiter


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replicas(redis: Redis, clock: Clock) -> list[Limiter]:
    return [Limiter(redis, clock), Limiter(redis, clock)]


async def admitted(replicas: list[Limiter], caller: Caller, tries: int, tokens: int = 1) -> list[Lease]:
    """Ask all replicas at once, and give what was let in."""
    asked = [replicas[n % len(replicas)].reserve(caller, items=1, tokens=tokens) for n in range(tries)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, Lease | Overloaded) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Lease)]


async def test_two_replicas_share_requests_a_minute(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", requests_per_minute=30)
    assert len(await admitted(replicas, caller, 100)) == 30
    with pytest.raises(RateLimited, match="30 requests a minute") as caught:
        await replicas[1].reserve(caller, items=1, tokens=1)
    assert caught.value.retry_after == pytest.approx(2.0, abs=0.01)

    clock.now += 10
    assert len(await admitted(replicas, caller, 100)) == 5
    clock.now += 3600
    assert len(await admitted(replicas, caller, 100)) == 30  # a bucket is never fuller than full


async def test_keys_do_not_share(replicas: list[Limiter]) -> None:
    for name in ("a", "b"):
        assert len(await admitted(replicas, Caller(name=name, requests_per_minute=3), 10)) == 3


async def test_tokens_a_minute_are_settled_to_what_was_run(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", tokens_per_minute=100)
    [one, other] = await admitted(replicas, caller, 3, tokens=50)
    replicas[0].settle(one, 10)
    replicas[1].settle(other, 70)
    await asyncio.gather(*(replica.close() for replica in replicas))

    await replicas[0].reserve(caller, items=1, tokens=20)
    with pytest.raises(RateLimited) as caught:
        await replicas[0].reserve(caller, items=1, tokens=6)
    assert caught.value.retry_after == pytest.approx(3.6, abs=0.01)
    standing = replicas[0].standing(caller)
    assert standing
    assert standing.tokens == 0


async def test_a_request_over_a_minutes_tokens_has_its_turn_and_is_paid_for(
    replicas: list[Limiter], clock: Clock
) -> None:
    caller = Caller(name="a", tokens_per_minute=60)
    await replicas[0].reserve(caller, items=1, tokens=120)
    clock.now += 61
    with pytest.raises(RateLimited):
        await replicas[0].reserve(caller, items=1, tokens=2)
    clock.now += 1
    await replicas[0].reserve(caller, items=1, tokens=2)


async def test_a_days_quota_ends_at_midnight_utc(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", tokens_per_day=100)
    clock.now = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()
    assert len(await admitted(replicas, caller, 10, tokens=30)) == 3
    with pytest.raises(QuotaExceeded, match="100 tokens a day") as caught:
        await replicas[0].reserve(caller, items=1, tokens=30)
    assert caught.value.retry_after == pytest.approx(1.0)

    clock.now += 1
    assert len(await admitted(replicas, caller, 10, tokens=30)) == 3


async def test_a_months_quota(replicas: list[Limiter], clock: Clock, redis: Redis) -> None:
    caller = Caller(name="a", tokens_per_month=100)
    [lease] = await admitted(replicas, caller, 2, tokens=60)
    with pytest.raises(QuotaExceeded) as caught:
        await replicas[0].reserve(caller, items=1, tokens=60)
    assert caught.value.retry_after == pytest.approx(36 * 3600)

    clock.now = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    await replicas[0].reserve(caller, items=1, tokens=60)
    replicas[0].settle(lease, 0)  # it is given back to the month that it was taken from
    await replicas[0].close()
    assert [await redis.get(keys.quota("a", month)) for month in ("2026-11", "2026-12")] == [b"0", b"60"]


async def test_items_in_hand(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", concurrent_items=10)
    lease = await replicas[0].reserve(caller, items=6, tokens=1)
    await replicas[1].reserve(caller, items=4, tokens=1)
    with pytest.raises(RateLimited, match="10 items in hand"):
        await replicas[1].reserve(caller, items=1, tokens=1)
    replicas[0].settle(lease, 1)
    await replicas[0].close()
    await replicas[1].reserve(caller, items=6, tokens=1)
    with pytest.raises(Forbidden, match="10 items in hand at once, not 11"):
        await replicas[1].reserve(caller, items=11, tokens=1)


async def test_what_a_dead_replica_held_ends_by_itself(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", concurrent_items=10)
    lease = await replicas[0].reserve(caller, items=10, tokens=1, timeout=60)
    clock.now += 60
    with pytest.raises(RateLimited):
        await replicas[1].reserve(caller, items=1, tokens=1)
    clock.now += 6
    await replicas[1].reserve(caller, items=10, tokens=1, timeout=60)

    replicas[0].settle(lease, 1)  # it was not dead after all, and what it held is not given back twice
    await replicas[0].close()
    with pytest.raises(RateLimited):
        await replicas[1].reserve(caller, items=1, tokens=1)


async def test_what_is_refused_costs_nothing(replicas: list[Limiter], clock: Clock) -> None:
    caller = Caller(name="a", requests_per_minute=5, tokens_per_minute=100, tokens_per_day=80)
    await replicas[0].reserve(caller, items=1, tokens=50)
    for _ in range(10):
        with pytest.raises(QuotaExceeded):
            await replicas[0].reserve(caller, items=1, tokens=40)
    standing = replicas[0].standing(caller)
    assert standing
    assert (standing.requests, standing.tokens, standing.day) == (4, 50, 30)


async def test_every_key_expires(replicas: list[Limiter], redis: Redis) -> None:
    caller = Caller(name="a", requests_per_minute=5, tokens_per_minute=10**6, concurrent_items=5)
    caller = replace(caller, tokens_per_day=10**9, tokens_per_month=10**9)
    lease = await replicas[0].reserve(caller, items=2, tokens=10**7)
    replicas[0].settle(lease, 1)
    await replicas[0].close()
    left = {str(key): await redis.ttl(key) for key in await redis.keys("*")}
    assert len(left) == 3  # the leases are gone already
    assert all(0 < seconds <= 33 * 86400 for seconds in left.values()), left
    assert len({key[key.index("{") : key.index("}")] for key in left}) == 1


async def test_by_the_servers_own_clock(redis: Redis) -> None:
    limiters = [Limiter(redis), Limiter(redis)]
    assert len(await admitted(limiters, Caller(name="a", requests_per_minute=3), 9)) == 3


async def test_a_queue_that_hangs_is_as_good_as_away() -> None:
    hung = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hung.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(f"redis://127.0.0.1:{port}") as redis:
        limiter = Limiter(redis)
        with pytest.raises(Unavailable):
            await limiter.reserve(Caller(name="a", concurrent_items=1), items=1, tokens=1, timeout=0.1)
        hung.set()
        server.close()
        await limiter.close()


async def test_a_caller_who_leaves_while_it_is_counted_holds_nothing(redis: Redis) -> None:
    limiter, caller = Limiter(redis), Caller(name="a", concurrent_items=5)
    await limiter.reserve(caller, items=1, tokens=1)
    leaving = asyncio.create_task(limiter.reserve(caller, items=4, tokens=1))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    await limiter.close()
    await limiter.reserve(caller, items=4, tokens=1)
