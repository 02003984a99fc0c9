"""Dead letters on the real server: read, queued again, dropped."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import command
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.letters import drop_letters, read_letters, retry_letter
from infinity_pool.broker.presence import read_model
from tests.broker.conftest import Echo, lengths
from tests.broker.test_consumer import member, put


async def bury(redis: Redis, redis_url: str, count: int, ttl_ms: int | None = None) -> None:
    """Have a worker give some jobs up, and answer them with nothing."""
    async with member(redis_url, redis, "undertaker") as consumer:
        await put(redis, *[3] * count, ttl_ms=ttl_ms)
        while count:
            taken = await consumer.take("online", 1)
            count -= len(taken)
            for delivery in taken:
                await consumer.bury(delivery, "its worker died 3 times")
            await consumer.forget(taken)


async def test_letters_are_read_in_order_and_over_pages(redis: Redis, redis_url: str) -> None:
    assert await read_letters(redis, "m") == []
    await bury(redis, redis_url, 230)
    letters = await read_letters(redis, "m")

    assert [letter.job.id for letter in letters if letter.job] == [f"online{number}" for number in range(230)]
    assert {letter.reason for letter in letters} == {"its worker died 3 times"}
    assert abs(letters[-1].buried - time.time()) < 5
    assert letters[0].job
    assert letters[0].job.items == ["text"]


async def test_a_letter_is_queued_again_as_if_it_were_new(redis: Redis, redis_url: str) -> None:
    await bury(redis, redis_url, 2, ttl_ms=1)
    first, second = await read_letters(redis, "m")
    await redis.hset(keys.attempts("m"), "other", "3")

    await retry_letter(redis, "m", first.id)

    assert [letter.id for letter in await read_letters(redis, "m")] == [second.id]
    waiting = (await read_model(redis, "m")).waiting["online"]
    assert (waiting.items, waiting.tokens) == (1, 3)
    await asyncio.sleep(0.01)  # its own time would be over
    async with member(redis_url, redis) as consumer:
        [delivery] = await consumer.take("online", 100)
        assert delivery.job
        assert (delivery.job.id, delivery.deadline, delivery.orphan) == ("online0", None, False)
        await consumer.answer([(delivery, lengths(delivery.job))])  # to a channel that never was
    waiting = (await read_model(redis, "m")).waiting["online"]
    assert (waiting.items, waiting.tokens, waiting.bytes) == (0, 0, 0)
    assert not await redis.exists("replies")


async def test_who_still_listens_hears_of_it(client: QueueClient, echo: Echo, redis: Redis) -> None:
    echo.open.clear()
    await asyncio.sleep(0.6)
    asked = asyncio.create_task(client.embed("m", "four"))
    while not (jobs := await command(redis, "XRANGE", keys.jobs("m", "online"), "-", "+")):
        await asyncio.sleep(0.01)
    entry, fields = jobs[0]
    await redis.xadd(keys.dead("m"), {"j": dict(fields)[b"j"], "reason": "a test"})
    await redis.xdel(keys.jobs("m", "online"), entry)  # gone from the queue: only the letter has it

    [letter] = await read_letters(redis, "m")
    await retry_letter(redis, "m", letter.id)
    echo.open.set()

    assert (await asked).tolist() == [4, 4, 4]


async def test_letters_are_dropped(redis: Redis, redis_url: str) -> None:
    await bury(redis, redis_url, 3)
    letters = await read_letters(redis, "m")

    assert await drop_letters(redis, "m", []) == 0
    assert await drop_letters(redis, "m", [letters[0].id, letters[2].id, "1-1"]) == 2
    assert await read_letters(redis, "m") == [letters[1]]
    assert (await read_model(redis, "m")).waiting["online"].items == 0


async def test_what_cannot_be_read_is_shown_and_not_queued(redis: Redis) -> None:
    await redis.xadd(keys.dead("m"), {"j": b"\xc1 nonsense", "reason": "who knows"})
    [letter] = await read_letters(redis, "m")

    assert (letter.job, letter.reason) == (None, "who knows")
    with pytest.raises(InvalidInput, match="that can be read"):
        await retry_letter(redis, "m", letter.id)
    assert await drop_letters(redis, "m", [letter.id]) == 1


@pytest.mark.parametrize("letter_id", ["", "-", "+", "1", "x-1", "1-1-1"])
async def test_an_id_that_is_none(letter_id: str, redis: Redis) -> None:
    with pytest.raises(InvalidInput, match="is no id of a dead letter"):
        await retry_letter(redis, "m", letter_id)
    with pytest.raises(InvalidInput, match="is no id of a dead letter"):
        await drop_letters(redis, "m", [letter_id])
    with pytest.raises(InvalidInput, match="has no dead letter 1-1"):
        await retry_letter(redis, "m", "1-1")
