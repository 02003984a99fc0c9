"""Who asks for little beside who asks for much: a whole worker, whose engine takes a set time for each batch."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.families import dummy
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.interface import Head, ModelFiles, Rows
from tests.workers.loop.test_worker import FILES, Running, runs

DOCUMENTS = ["d" * 400] * 2000


class Ranks(Dummy):
    """Pairs in, the lengths of both texts out, for `rerank` and `classify`."""

    tasks = ("rerank", "classify")

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.labels = ("long",)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        return super().prepare(head, ["".join(item) for item in items], options)

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array:
        return outputs[:, 0] if head.task == "rerank" else outputs[:, :1]


class Counted(Dummy):
    """Notes how many texts each call prepares; the first call waits for the gate."""

    calls: ClassVar[list[int]] = []
    gate: ClassVar[threading.Event] = threading.Event()

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        self.calls.append(len(items))
        assert self.gate.wait(30)
        return super().prepare(head, items, options)


async def test_one_text_is_prepared_after_one_job_of_a_backfill_at_most(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dummy, "make", Counted)
    running = Running(redis_url, redis, Counted(FILES))
    async with runs(running), QueueClient(redis_url, timeout=60) as client:
        while not client.best("m"):
            await client.models()
        backfill = asyncio.create_task(client.embed("m", ["x" * 16_000] * 64))
        while not Counted.calls:
            await asyncio.sleep(0.001)
        one = asyncio.create_task(client.embed("m", "y" * 8_000))  # too long to be prepared in place
        while not running.holdings.entries("online"):
            await asyncio.sleep(0.001)
        assert len(running.holdings.entries("bulk")) > 1
        await asyncio.sleep(0)
        Counted.gate.set()
        await asyncio.gather(backfill, one)

    assert Counted.calls == [8, 1, *[8] * 7]


async def test_jobs_for_the_tokenizer_alone_are_small(client: QueueClient) -> None:
    asking = asyncio.create_task(client.submit("m", "tokenize", ["x" * 30_000] * 5))
    while client.waiting == 0:
        await asyncio.sleep(0)

    assert client.waiting == 3

    with pytest.raises(InvalidInput, match="cannot tokenize"):
        await asking


@pytest.fixture
async def client(redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[QueueClient]:
    monkeypatch.setattr(dummy, "make", Ranks)
    running = Running(redis_url, redis, Ranks(FILES))
    running.engine.seconds = 0.02
    async with runs(running), QueueClient(redis_url, timeout=60) as client:
        while not client.best("m"):
            await client.models()
        yield client


@pytest.mark.parametrize("task", ["rerank", "classify"])
async def test_one_item_is_answered_before_a_large_request_that_came_first(task: str, client: QueueClient) -> None:
    large = asyncio.create_task(client.submit("m", task, [["q", document] for document in DOCUMENTS]))
    while client.waiting == 0:
        await asyncio.sleep(0)

    for length in range(1, 6):
        result = await client.submit("m", task, [["q", "d" * length]])
        assert result.outputs[0] == 1 + length

    assert not large.done()
    assert len((await large).outputs) == len(DOCUMENTS)
