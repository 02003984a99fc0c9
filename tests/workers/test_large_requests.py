"""Who asks for little beside who asks for much: a whole worker, whose engine takes a set time for each batch."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.families import dummy
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.interface import Head, ModelFiles, Rows
from tests.workers.test_worker import FILES, Running, runs

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
