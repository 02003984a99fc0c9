import asyncio
import contextlib
import random
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Failure, Result
from infinity_pool.broker.producer import Producer
from tests.broker.conftest import Echo


@pytest.fixture
async def producer(redis_url: str, echo: Echo) -> AsyncIterator[Producer]:
    async with Producer(redis_url, "nightly", max_in_flight=10) as producer:
        yield producer


async def test_replies_carry_the_ids_they_were_put_under(producer: Producer) -> None:
    for n in range(5):
        assert await producer.put("m", ["x" * n] * 3, id=f"shard-{n}")
    await producer.put("m", ["bad"], id="bad")

    replies = {reply.job_id: reply async for reply in producer.replies()}

    assert set(replies) == {"bad", *(f"shard-{n}" for n in range(5))}
    assert isinstance(replies["bad"], Failure)
    four = replies["shard-4"]
    assert isinstance(four, Result)
    assert isinstance(four.outputs, np.ndarray)
    assert four.outputs[:, 0].tolist() == [4, 4, 4]
    assert await producer.open_jobs() == set()


async def test_a_job_is_queued_once(producer: Producer, echo: Echo) -> None:
    assert await producer.put("m", ["a"], id="one")
    assert not await producer.put("m", ["a"], id="one")

    assert len([reply async for reply in producer.replies()]) == 1
    assert len(echo.seen) == 1


async def test_no_more_than_so_many_are_open(producer: Producer) -> None:
    for n in range(10):
        await producer.put("m", ["a"], id=str(n))

    waiting = asyncio.create_task(producer.put("m", ["a"], id="one more"))
    await asyncio.sleep(0.3)
    assert not waiting.done()

    assert len([reply async for reply in producer.replies()]) >= 10
    assert await waiting


async def test_a_reply_not_yet_handled_is_given_again(producer: Producer, redis_url: str) -> None:
    await producer.put("m", ["a"], id="one")
    async with contextlib.aclosing(producer.replies()) as replies:
        async for _ in replies:
            break  # as in a crash while it was handled

    async with Producer(redis_url, "nightly") as again:
        assert [reply.job_id async for reply in again.replies()] == ["one"]


async def test_its_keys_expire(producer: Producer, redis: Redis) -> None:
    await producer.put("m", ["a"], id="one")

    for key in (keys.replies("nightly"), keys.open_jobs("nightly")):
        assert 0 < await redis.pttl(key) <= 24 * 3600 * 1000


@pytest.mark.parametrize("items", [[], ["a"] * 65])
async def test_a_job_of_no_or_too_many_items_is_refused(producer: Producer, items: list[str]) -> None:
    with pytest.raises(InvalidInput):
        await producer.put("m", items, id="x")


SCRIPT = """
    import asyncio, sys
    from infinity_pool.broker.producer import Producer

    async def main(url, total, done):
        finished = set(open(done).read().split())
        async with Producer(url, "killed", max_in_flight=50) as producer:
            async def put():
                for n in range(total):
                    if str(n) not in finished:
                        await producer.put("m", ["x" * (n % 9)], id=str(n))
            putting = asyncio.create_task(put())
            with open(done, "a") as log:
                while not putting.done() or await producer.open_jobs():
                    async for reply in producer.replies():
                        log.write(f"{reply.job_id}\\n")
                        log.flush()
                    await asyncio.sleep(0.01)
            await putting

    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


async def test_killed_again_and_again_it_loses_nothing(redis_url: str, echo: Echo, tmp_path: Path) -> None:
    done, script = tmp_path / "done", tmp_path / "script.py"
    done.touch()
    script.write_text(textwrap.dedent(SCRIPT))
    rng, total = random.Random(3), 2000
    for kill in (True, True, True, True, False):
        process = await asyncio.create_subprocess_exec(sys.executable, script, redis_url, str(total), str(done))
        if kill:
            before = done.stat().st_size
            async with asyncio.timeout(30):
                while done.stat().st_size == before:  # until it is at work
                    await asyncio.sleep(0.005)
            await asyncio.sleep(rng.random() / 20)
            process.send_signal(signal.SIGKILL)
        await process.wait()
        assert not kill or len(done.read_text().split()) < total, "the kill came after the end: nothing was tested"

    assert process.returncode == 0
    assert {int(line) for line in done.read_text().split()} == set(range(total))
