import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence

import numpy as np
import pytest
from redis.asyncio import Redis

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import (
    DeadLettered,
    InvalidInput,
    ModelNotFound,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from infinity_pool.broker.mapping import Document, Mapper
from infinity_pool.broker.messages import Result
from tests.broker.conftest import Echo


def numbered(count: int) -> Iterator[str]:
    return (f"{n:>0{n % 40 + 1}}" for n in range(count))


async def test_results_come_in_order_with_ids(client: QueueClient) -> None:
    documents = (Document(f"id-{n}", "x" * (n % 50)) for n in range(1000))

    results = [result async for result in client.map("m", documents, max_in_flight=100)]

    assert [result.index for result in results] == list(range(1000))
    assert [result.id for result in results] == [f"id-{n}" for n in range(1000)]
    assert [result.output.tolist() for result in results] == [[n % 50] * 3 for n in range(1000)]


async def test_a_bad_document_fails_alone(client: QueueClient, echo: Echo) -> None:
    documents = [*numbered(150), "bad", *numbered(50), "bad"]

    results = [result async for result in client.map("m", documents)]

    failed = [result.index for result in results if result.error]
    assert failed == [150, 201]
    assert isinstance(results[150].error, InvalidInput)
    assert all(result.output is not None for result in results if not result.error)


async def test_equal_texts_are_computed_once(client: QueueClient, echo: Echo) -> None:
    results = [result async for result in client.map("m", ["same", "other"] * 500, max_in_flight=1000)]

    assert [int(result.output[0]) for result in results] == [4, 5] * 500
    assert sum(len(job.items) for job in echo.seen) == 2
    assert sum(result.tokens for result in results) == 2


async def test_no_more_than_so_many_are_open(client: QueueClient) -> None:
    read = given = most = 0

    def source() -> Iterator[str]:
        nonlocal read
        for text in numbered(500):
            read += 1
            yield text

    async for _ in client.map("m", source(), max_in_flight=20):
        most = max(most, read - given)
        given += 1

    assert given == 500
    assert 1 < most <= 20


async def test_a_source_that_waits_for_its_results(client: QueueClient) -> None:
    """Documents are not held back until there are enough of them for a job."""
    came: asyncio.Queue[str | None] = asyncio.Queue()

    async def source() -> AsyncIterator[str]:
        while (text := await came.get()) is not None:
            yield text

    await came.put("first")
    seen = []
    async for result in client.map("m", source()):
        seen.append(int(result.output[0]))
        await came.put("the next" if len(seen) < 3 else None)

    assert seen == [5, 8, 8]


async def test_what_concerns_all_is_raised(client: QueueClient) -> None:
    with pytest.raises(ModelNotFound):
        [_ async for _ in client.map("other", ["a"])]
    with pytest.raises(InvalidInput, match="max_in_flight"):
        client.map("m", ["a"], max_in_flight=0)


async def test_the_errors_of_a_source_are_raised(client: QueueClient) -> None:
    def source() -> Iterator[str]:
        yield from numbered(100)
        raise OSError("the disk is gone")

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        async for result in client.map("m", source()):
            assert result.error is None
            seen.append(result.index)
    assert seen == [*range(100)]


async def test_one_that_is_left_takes_its_jobs_back(client: QueueClient, echo: Echo) -> None:
    results = client.map("m", map(str, itertools.count()), max_in_flight=300)
    async for result in results:
        if result.index == 50:
            break
    await results.aclose()

    assert client.waiting == 0


async def test_an_outage_is_waited_out(client: QueueClient, redis: Redis) -> None:
    seen = 0
    async for result in client.map("m", numbered(3000), max_in_flight=200):
        assert result.error is None
        seen += 1
        if seen in (500, 1500):
            await redis.client_kill_filter(_type="normal", skipme=True)
    assert seen == 3000


class Scripted:
    """Answers calls as its script says: an error is raised, and without more of them lengths are given."""

    def __init__(self, *script: Exception) -> None:
        self.script = list(script)
        self.calls: list[list[str]] = []

    async def __call__(self, items: Sequence[str]) -> Result:
        self.calls.append(list(items))
        await asyncio.sleep(0)
        if self.script:
            raise self.script.pop(0)
        if "killer" in items:
            raise DeadLettered("it broke its worker")
        return Result("job", np.array([len(item) for item in items]), len(items))


async def test_who_is_not_named_is_found_by_halves() -> None:
    ask = Scripted()
    texts = [f"text {n}" for n in range(64)]
    texts[37] = "killer"

    results = [result async for result in Mapper(ask, max_in_flight=256).results(texts)]

    assert [result.index for result in results if result.error] == [37]
    assert len(ask.calls) == 13


async def test_only_where_nobody_waits_is_unavailability_waited_out() -> None:
    patient, hasty = Scripted(Unavailable("gone")), Scripted(Unavailable("gone"))

    [one] = [each async for each in Mapper(patient).results(["a"])]
    [other] = [each async for each in Mapper(hasty, waits=False).results(["a"])]

    assert (one.output, len(patient.calls)) == (1, 2)
    assert isinstance(other.error, Unavailable)


async def test_a_limit_of_a_minute_is_waited_out_and_a_quota_is_not() -> None:
    patient = Scripted(RateLimited("too many", retry_after=0.01))
    [one] = [each async for each in Mapper(patient).results(["a"])]
    assert (one.output, len(patient.calls)) == (1, 2)

    with pytest.raises(QuotaExceeded):
        [each async for each in Mapper(Scripted(QuotaExceeded("none left", retry_after=9e4))).results(["a"])]


async def test_the_first_done_comes_first_if_order_is_not_asked_for() -> None:
    async def ask(items: Sequence[str]) -> Result:
        await asyncio.sleep(0.2 if "slow" in items else 0.0)
        return Result("job", [len(item) for item in items], 1)

    texts = ["slow", *(f"t{n}" for n in range(200)), "slow"]
    results = Mapper(ask, max_in_flight=250, ordered=False).results(texts)
    indices = [result.index async for result in results]

    assert sorted(indices) == list(range(202))
    assert indices[0] != 0


async def test_memory_does_not_grow_with_the_number_of_documents() -> None:
    ask = Scripted()
    ask.calls = Forgetful()
    tracemalloc.start()
    sizes = []
    async for result in Mapper(ask, max_in_flight=200).results(numbered(20_000)):
        if result.index in (4_000, 19_000):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < sizes[0] + 100_000


class Forgetful(list[list[str]]):
    def append(self, item: list[str]) -> None:
        pass
