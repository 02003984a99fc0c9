"""Who runs a batch, and what becomes of those who lost it."""

import dataclasses
import time

import pytest
from redis.asyncio import Redis

from infinity_pool.broker import batches, keys, records
from infinity_pool.broker.batches import Batch, Claim, ClaimLost, Waiting, moved
from infinity_pool.broker.errors import InvalidInput, Overloaded

DAY = 86_400


def batch_of(owner: str) -> Batch:
    now = int(time.time())
    about = {"input_file_id": f"file-{owner}", "endpoint": "/v1/embeddings", "completion_window": "24h"}
    times = {"created_at": now, "expires_at": now + DAY, "kept_until": now + 2 * DAY}
    return Batch(id=batches.new_id(), owner=owner, **about, **times)  # type: ignore[arg-type] # of both kinds


async def added(redis: Redis, owner: str) -> Batch:
    batch = batch_of(owner)
    await batches.add(redis, batch)
    return batch


async def claimed(redis: Redis, batch: Batch) -> Claim:
    claim = Claim(redis, Waiting(batch.id, batch.owner or records.NOBODY))
    assert await claim.take()
    return claim


async def test_one_replica_runs_a_batch(redis: Redis) -> None:
    batch = await added(redis, "a")
    claim = await claimed(redis, batch)
    assert not await Claim(redis, claim.one).take()
    assert await claim.change({"completed": 3}, ["output/1"]) == "validating"
    assert await claim.read() == dataclasses.replace(batch, completed=3)
    await claim.leave()
    assert await batches.turns(redis) == ([claim.one], {})


async def test_who_lost_a_batch_changes_nothing_of_it(redis: Redis) -> None:
    batch = await added(redis, "a")
    late = await claimed(redis, batch)
    await late.change({"completed": 1}, ["output/late-1"])
    await redis.delete(keys.batch_claim(batch.id))  # as when it has expired
    claim = await claimed(redis, batch)
    with pytest.raises(ClaimLost):
        await late.change({"completed": 9}, ["output/late-2"])
    await late.leave()
    await claim.change({"completed": 2}, ["output/next-1"])
    assert await claim.parts() == ["output/late-1", "output/next-1"]
    found = await claim.read()
    assert found
    assert found.completed == 2


async def test_a_claim_expires_unless_it_is_prolonged(redis: Redis) -> None:
    batch = await added(redis, "a")
    claim = await claimed(redis, batch)
    await redis.pexpire(keys.batch_claim(batch.id), 1000)
    await claim.change({})
    assert await redis.pttl(keys.batch_claim(batch.id)) > 1000


async def test_states_change_only_from_those_expected(redis: Redis) -> None:
    batch = await added(redis, "a")
    claim = await claimed(redis, batch)
    assert await claim.change(moved("in_progress"), expected=["validating"]) == "in_progress"
    await batches.cancel(redis, batch.id)
    assert await claim.change(moved("finalizing"), expected=["in_progress"]) == "cancelling"
    assert await claim.change(moved("cancelled")) == "cancelled"
    await batches.cancel(redis, batch.id)
    found = await claim.read()
    assert found
    assert (found.status, found.finalizing_at) == ("cancelled", None)
    assert found.cancelled_at


async def test_keys_take_turns(redis: Redis) -> None:
    made = [await added(redis, owner) for owner in ("a", "a", "a", "b", "")]
    assert [one.id for one in (await batches.turns(redis))[0]] == [made[place].id for place in (0, 3, 4, 1, 2)]
    await claimed(redis, made[0])
    free, run = await batches.turns(redis)
    assert ([one.id for one in free], run) == ([made[place].id for place in (3, 4, 1, 2)], {"a": 1})
    await batches.defer(redis, Waiting(made[3].id, "b"))
    assert [one.id for one in (await batches.turns(redis))[0]] == [made[place].id for place in (4, 3, 1, 2)]
    assert await batches.uses(redis, "file-b") == made[3].id
    await batches.close(redis, Waiting(made[3].id, "b"))
    assert await batches.uses(redis, "file-b") is None


async def test_a_key_has_so_many_at_most(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_OPEN", 2)
    for owner in ("a", "a", "b"):
        await added(redis, owner)
    with pytest.raises(Overloaded, match="2 batches of this key"):
        await added(redis, "a")


async def test_lists_by_owner_and_by_pages(redis: Redis) -> None:
    made = [await added(redis, owner) for owner in ("a", "b", "a", "")]
    assert await batches.page(redis, "a", None, 5) == ([made[2], made[0]], None)
    assert await batches.page(redis, "", None, 5) == ([made[3]], None)
    assert await batches.page(redis, records.ALL, None, 2) == ([made[3], made[2]], made[2].id)
    assert await batches.page(redis, records.ALL, made[2].id, 2) == ([made[1], made[0]], None)
    with pytest.raises(InvalidInput, match="there is no 'x'"):
        await batches.page(redis, "a", "x", 2)
    await batches.remove(redis, made[0])
    assert await batches.page(redis, "a", None, 5) == ([made[2]], None)
    assert await batches.get(redis, made[0].id) is None


async def test_what_is_over_is_named_and_given_no_more(redis: Redis) -> None:
    batch = dataclasses.replace(batch_of("a"), kept_until=int(time.time()) - 1)
    await batches.add(redis, batch)
    assert await batches.get(redis, batch.id) is None
    assert await records.due(redis) == [batch.id]


async def test_every_key_expires(redis: Redis) -> None:
    batch = await added(redis, "a")
    claim = await claimed(redis, batch)
    await claim.change({}, ["output/1"])
    await claim.close()
    assert {key for key in await redis.keys() if await redis.ttl(key) < 0} == set()
