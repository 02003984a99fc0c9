"""One client, four ways: over the queue and over HTTP, async and sync, with the same results and errors."""

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest

import infinity_pool
from infinity_pool import Client, Document, SyncClient
from infinity_pool.api.clients.client import AnyClient
from infinity_pool.api.clients.http_client import HttpClient
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import (
    Cancelled,
    DeadLettered,
    DeadlineExceeded,
    InfinityError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    Unauthorized,
    Unavailable,
    Unprocessable,
)
from infinity_pool.broker.messages import Lane
from infinity_pool.broker.presence import ModelStatus
from tests.api.conftest import WIDTH, Api, Held, until


@pytest.fixture(params=["queue", "http"])
def target(request: pytest.FixtureRequest, queue_url: str, idle_api: Api) -> str:
    return queue_url if request.param == "queue" else idle_api.url


@pytest.fixture
async def client(target: str) -> AsyncIterator[AnyClient]:
    async with Client(target) as client:
        yield client


@pytest.fixture
def sync_client(target: str) -> Iterator[SyncClient]:
    with SyncClient(target) as client:
        yield client


def test_the_url_chooses() -> None:
    assert isinstance(Client("redis://localhost"), QueueClient)
    assert isinstance(Client("rediss://localhost"), QueueClient)
    assert isinstance(Client("unix:///tmp/socket"), QueueClient)
    assert isinstance(Client("redis+sentinel://a,b/service"), QueueClient)
    assert isinstance(Client("rediss+cluster://localhost"), QueueClient)
    assert isinstance(Client("http://localhost"), HttpClient)
    assert isinstance(Client("https://localhost/v1"), HttpClient)
    for wrong in ("ftp://localhost", "http+cluster://localhost", "localhost:7997", ""):
        with pytest.raises(InvalidInput, match="starts with one of redis://"):
            Client(wrong)
    assert set(infinity_pool.__all__) == {"Client", "Document", "InfinityError", "SyncClient", "connect"}


async def test_an_open_connection_stands_for_its_queue(queue_url: str, api: Api) -> None:
    async with connect(queue_url) as redis:
        async with Client(redis) as client:
            assert (await client.embed("m", "four")).tolist() == [4] * WIDTH
        assert await redis.ping()


async def test_the_same_vectors(client: AnyClient, api: Api) -> None:
    one = await client.embed("m", "four")
    several = await client.embed("m", ["a", "bc"], dimensions=2)
    many = await client.embed("m", ["x" * (n % 100) for n in range(1000)])

    assert one.dtype == several.dtype == np.float32
    assert one.tolist() == [4] * WIDTH
    assert several.tolist() == [[1, 1], [2, 2]]
    assert many[:, 0].tolist() == [n % 100 for n in range(1000)]


async def test_many_documents_in_order(client: AnyClient, api: Api) -> None:
    documents = [Document(n, "x" * (n % 50)) for n in range(600)]
    documents[300] = Document(300, ["no", "text"])

    results = [result async for result in client.map("m", documents, options={"dimensions": 2}, max_in_flight=200)]

    assert [result.id for result in results] == list(range(600))
    assert [result.index for result in results if isinstance(result.error, InvalidInput)] == [300]
    assert all(result.output.tolist() == [result.id % 50] * 2 for result in results if not result.error)
    with pytest.raises(InvalidInput, match="dimensions"):
        [_ async for _ in client.map("m", ["a"], options={"dimensions": 99})]


def test_many_documents_without_awaiting(sync_client: SyncClient, api: Api) -> None:
    texts = ("x" * (n % 50) for n in range(600))

    results = list(sync_client.map("m", texts, max_in_flight=200))

    assert [int(result.output[0]) for result in results] == [n % 50 for n in range(600)]
    for result in sync_client.map("m", map(str, itertools.count()), max_in_flight=8):
        if result.index == 20:
            break  # who stops there leaves nothing behind
    assert sync_client.embed("m", "four")[0] == 4


def test_a_slow_source_keeps_no_results_waiting(sync_client: SyncClient, api: Api) -> None:
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        for n in range(20):
            time.sleep(0.03)
            read += 1
            yield "x" * n

    had_read = [read for _ in sync_client.map("m", source())]

    assert had_read[0] < 20
    assert len(had_read) == 20


def test_what_a_source_gave_before_its_error_is_run(sync_client: SyncClient, api: Api) -> None:
    def source() -> Iterator[str]:
        yield from ("x" * n for n in range(100))
        raise OSError("the disk is gone")

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        for result in sync_client.map("m", source()):
            assert result.error is None
            seen.append(int(result.output[0]))

    assert seen == [*range(100)]


async def test_one_document_is_not_taken_for_several(client: AnyClient, target: str, api: Api) -> None:
    for one in ("four", b"four", Document(1, "four")):
        with pytest.raises(InvalidInput, match="put a single one in a list"):
            client.map("m", one)
    with SyncClient(target) as sync_client, pytest.raises(InvalidInput, match="in a list"):
        next(sync_client.map("m", "four"))


async def test_a_lane_that_there_is_not(client: AnyClient, api: Api) -> None:
    with pytest.raises(InvalidInput, match="online or bulk"):
        await client.submit("m", "embed", ["a"], lane="fast")  # type: ignore[arg-type]
    assert (await client.embed("m", "four"))[0] == 4


async def test_what_is_no_pair_is_not_made_one(idle_api: Api) -> None:
    async with HttpClient(idle_api.url) as client:
        for item in ("ab", ["a"], ["a", "b", "c"], ["a", None], None):
            with pytest.raises(Unprocessable, match="a pair of two texts") as raised:
                await client.submit("m", "rerank", [["a", "b"], item])
            assert raised.value.item == 1


async def test_http_that_is_cancelled_before_it_began(idle_api: Api) -> None:
    async with HttpClient(idle_api.url) as client:
        asked = asyncio.create_task(client.submit("m", "embed", ["a"] * 1000))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    gc.collect()  # what was never awaited is told of now, and fails the test


async def test_the_same_result(client: AnyClient, held: Held) -> None:
    asked = asyncio.create_task(client.submit(held.model, "embed", ["a", "b"], lane="bulk"))
    await held.answer(await held.take("bulk"))
    result = await asked

    assert np.asarray(result.outputs).tolist() == [[1, 1, 1]] * 2
    assert (result.tokens, result.truncated) == (7, 1)
    assert result.job_id


async def test_the_same_models(client: AnyClient, held: Held) -> None:
    await until(lambda: _knows(client, held.model))
    found = {model.name: model for model in await client.models()}

    assert found[held.model] == ModelStatus(held.model, [held.info], found[held.model].waiting)
    assert found[held.model].waiting.keys() == {"online", "bulk"}
    assert client.status[held.model].ready


@pytest.mark.parametrize(
    ("items", "lane", "expected"),
    [(1, None, "online"), (9, None, "bulk"), (1, "bulk", "bulk"), (9, "online", "online")],
)
async def test_the_same_lanes(items: int, lane: Lane | None, expected: Lane, client: AnyClient, held: Held) -> None:
    asked = asyncio.create_task(client.embed(held.model, ["a"] * items, lane=lane))
    await held.answer(await held.take(expected))

    assert (await asked).shape == (items, 3)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("bad", param="input"),
        Unprocessable("bad", param="input", item=2),
        DeadLettered("broke"),
        InfinityError("ours"),
    ],
)
async def test_the_same_errors(error: InfinityError, client: AnyClient, held: Held) -> None:
    asked = asyncio.create_task(client.embed(held.model, "a"))
    await held.refuse(await held.take(), error)

    with pytest.raises(type(error)) as caught:
        await asked
    assert type(caught.value) is type(error)
    assert caught.value.to_wire() == error.to_wire()


async def test_overload_says_when_to_come_again(client: AnyClient, held: Held) -> None:
    asked = asyncio.create_task(client.embed(held.model, "a"))
    await held.refuse(await held.take(), Overloaded("full"))

    with pytest.raises(Overloaded) as caught:
        await asked
    assert caught.value.retry_after == 1.0


async def test_errors_of_the_asking(client: AnyClient, held: Held) -> None:
    with pytest.raises(ModelNotFound, match="no model 'absent' is served here") as absent:
        await client.embed("absent", "a")
    assert absent.value.param == "model"
    with pytest.raises(InvalidInput) as empty:
        await client.embed(held.model, [])
    assert empty.value.param == "input"
    with pytest.raises(InvalidInput):
        await client.embed(held.model, "\ud83d")
    with pytest.raises(DeadlineExceeded):
        await client.embed(held.model, "a", timeout=0.3)


async def test_cancelling_takes_the_job_back(client: AnyClient, held: Held) -> None:
    asked = asyncio.create_task(client.embed(held.model, ["a"] * 3))
    await until(lambda: _waits(held, 3))

    asked.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: _waits(held, 0))


async def test_nobody_there(client: AnyClient) -> None:
    async with Client("http://127.0.0.1:1") as absent:
        with pytest.raises(Unavailable, match="the server cannot be reached"):
            await absent.embed("m", "a")
    async with Client("redis://127.0.0.1:1") as absent:
        with pytest.raises(Unavailable, match="the queue cannot be reached"):
            await absent.embed("m", "a")


async def test_a_long_list_over_http_fails_as_one(idle_api: Api, held: Held) -> None:
    async with HttpClient(idle_api.url) as client:
        asked = asyncio.create_task(client.embed(held.model, [str(place) for place in range(600)]))
        deliveries = [await held.take("bulk") for _ in range(3)]  # of the 4, 4 and 2 jobs of its requests
        last = max(deliveries, key=lambda one: int(one.job.items[0]) if one.job else -1)
        assert last.job
        await held.refuse(last, InvalidInput("bad", param="input", item=3))

        with pytest.raises(InvalidInput, match="bad") as caught:
            await asked
    assert caught.value.item == int(last.job.items[3])
    await until(lambda: _waits(held, 0))


async def test_the_key(start_api: Callable[..., Api], api: Api) -> None:
    guarded = start_api("--api-key", "sesame")
    async with HttpClient(guarded.url, api_key="sesame") as client:
        assert (await client.embed("m", "four")).tolist() == [4] * WIDTH
    async with HttpClient(guarded.url) as client:
        with pytest.raises(Unauthorized):
            await client.embed("m", "four")


async def test_http_has_only_some_tasks_yet(idle_api: Api) -> None:
    async with HttpClient(idle_api.url) as client:
        with pytest.raises(InvalidInput) as task:
            await client.submit("m", "sparse", ["a"])
        assert task.value.param == "task"
        with pytest.raises(InvalidInput, match="colour"):
            await client.submit("m", "embed", ["a"], options={"colour": "blue"})


def test_sync(sync_client: SyncClient, api: Api) -> None:
    assert sync_client.embed("m", "four").tolist() == [4] * WIDTH
    assert sync_client.embed("m", ["a", "bc"], dimensions=1).tolist() == [[1], [2]]
    assert sync_client.submit("m", "embed", ["four"]).tokens == 1
    assert "m" in [model.name for model in sync_client.models()]
    assert sync_client.status["m"].ready
    with pytest.raises(ModelNotFound):
        sync_client.embed("absent", "a")


def test_sync_from_many_threads(sync_client: SyncClient, api: Api) -> None:
    answers: dict[int, float] = {}

    def work(number: int) -> None:
        for _ in range(10):
            answers[number] = float(sync_client.embed("m", "x" * number)[0])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {number: float(number) for number in range(1, 21)}


def test_sync_closes_cleanly(target: str, api: Api) -> None:
    before = threading.active_count()
    client = SyncClient(target)
    client.embed("m", "a")

    client.close()
    client.close()

    assert threading.active_count() == before
    with pytest.raises(Cancelled, match="the client is closed"):
        client.embed("m", "a")


async def test_sync_close_frees_who_waits(target: str, held: Held) -> None:
    client = SyncClient(target)
    asked = asyncio.create_task(asyncio.to_thread(client.embed, held.model, "a"))
    await until(lambda: _waits(held, 1))

    await asyncio.to_thread(client.close)

    with pytest.raises(Cancelled):
        await asked


def test_sync_that_cannot_be_made() -> None:
    with pytest.raises(InvalidInput, match="starts with one of"):
        SyncClient("ftp://localhost")
    with pytest.raises(TypeError):
        SyncClient("http://localhost", colour="blue")


def test_sync_is_quick_to_make_and_close(target: str, api: Api) -> None:
    started = time.monotonic()
    with SyncClient(target) as client:
        client.embed("m", "a")

    assert time.monotonic() - started < 3


async def _knows(client: AnyClient, model: str) -> bool:
    return any(each.name == model for each in await client.models())


async def _waits(held: Held, items: int) -> bool:
    return sum((await held.waiting()).values()) == items
