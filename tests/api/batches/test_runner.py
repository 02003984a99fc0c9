"""What a replica does with the batches that there are, seen from inside it."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from aiohttp import web

from infinity_pool.api.app import make_app
from infinity_pool.api.batches import runner
from infinity_pool.api.batches.run import Run
from infinity_pool.api.batches.runner import RUNNER, Runner
from infinity_pool.api.batches.storage import place_of
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker import batches, files, keys, records
from infinity_pool.broker.batches import Batch, Status
from infinity_pool.broker.files import StoredFile
from tests.api.conftest import Held, until


@pytest.fixture
async def running(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runner]:
    """A replica that runs one batch at a time, by turns of a moment."""
    monkeypatch.setattr(runner, "_TURN", 0.1)
    monkeypatch.setattr(runner, "_LOOK", 0.05)
    monkeypatch.setattr(runner, "_SWEEP", 0.05)
    app = make_app(ApiSettings(redis_url=redis_url, files="memory://runner", batches_at_once=1))
    server = web.AppRunner(app)
    await server.setup()
    yield app[RUNNER]
    await server.cleanup()


@pytest.fixture
async def held(redis_url: str) -> AsyncIterator[Held]:
    worker = Held(redis_url)
    await worker.join()
    yield worker
    await worker.close()


async def _content(model: str, count: int) -> AsyncGenerator[bytes, None]:
    for number in range(count):
        body = {"model": model, "input": "a"}
        line = {"custom_id": f"{number}", "method": "POST", "url": "/v1/embeddings", "body": body}
        yield json.dumps(line).encode() + b"\n"


async def begun(running: Runner, owner: str, model: str, count: int = 3) -> Batch:
    """Put down a batch and its file."""
    file_id, now = files.new_id(), int(time.time())
    size = await running.storage.write(place_of(file_id), _content(model, count))
    await files.add(running.redis, StoredFile(file_id, owner, "a", "batch", size, now, now + 3600))
    batch = Batch(batches.new_id(), owner, file_id, "/v1/embeddings", "1h", now, now + 3600, now + 7200)
    await batches.add(running.redis, batch)
    return batch


async def is_now(running: Runner, batch: Batch, status: str) -> bool:
    found = await batches.get(running.redis, batch.id)
    return found is not None and found.status == status


async def test_a_batch_that_gets_nowhere_makes_room(running: Runner, held: Held, redis_url: str) -> None:
    stuck = await begun(running, "a", held.model)
    await until(lambda: is_now(running, stuck, "in_progress"))
    other = Held(redis_url)
    await other.join()
    batch = await begun(running, "a", other.model, count=1)
    await other.answer(await other.take("bulk"))
    await until(lambda: is_now(running, batch, "completed"))
    for _ in range(3):
        await held.answer(await held.take("bulk"))
    await until(lambda: is_now(running, stuck, "completed"))
    await other.close()


async def test_a_batch_without_its_input_fails(running: Runner, held: Held) -> None:
    file_id, now = files.new_id(), int(time.time())
    batch = Batch(batches.new_id(), "", file_id, "/v1/embeddings", "1h", now, now + 3600, now + 7200)
    await batches.add(running.redis, batch)
    await until(lambda: is_now(running, batch, "failed"))
    found = await batches.get(running.redis, batch.id)
    assert found
    assert found.errors == [
        {"code": "not_found", "line": None, "message": "the input file is gone", "param": "input_file_id"}
    ]
    assert await batches.waiting(running.redis) == []


async def is_gone(running: Runner, id: str) -> bool:
    return await running.redis.zscore(keys.expiring(), id) is None


async def test_a_file_that_a_batch_reads_outlives_its_time(running: Runner, held: Held) -> None:
    batch, past = await begun(running, "a", held.model, count=1), int(time.time()) - 1
    await records.expect(running.redis, batch.input_file_id, past)

    async def is_put_off() -> bool:
        return (await running.redis.zscore(keys.expiring(), batch.input_file_id) or 0) > time.time()

    await until(is_put_off)
    assert await running.storage.exists(place_of(batch.input_file_id))
    await held.answer(await held.take("bulk"))
    await until(lambda: is_now(running, batch, "completed"))


async def test_a_batch_that_breaks_its_server_again_and_again_fails(
    running: Runner, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(run: Run) -> Status:
        raise ValueError("broken")

    monkeypatch.setattr(batches, "CLAIM_MS", 100)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "run", break_down)
        batch = await begun(running, "a", held.model)
        await until(lambda: is_now(running, batch, "failed"))
    found = await batches.get(running.redis, batch.id)
    assert found
    assert found.errors
    assert found.errors[0]["code"] == "server_error"


async def test_what_its_time_is_over_is_removed(running: Runner) -> None:
    file_id, past = files.new_id(), int(time.time()) - 10
    broken_off = files.new_id()
    for each in (file_id, broken_off):
        await running.storage.put(place_of(each), b"a")
    batch = Batch(batches.new_id(), "a", file_id, "/v1/embeddings", "1s", past, past, past + 1)
    await batches.add(running.redis, batch)
    await until(lambda: is_gone(running, batch.id))
    await files.add(running.redis, StoredFile(file_id, "a", "a", "batch", 1, past, past + 1))
    await records.expect(running.redis, broken_off, past)

    await until(lambda: is_gone(running, file_id))
    assert not await running.storage.exists(place_of(file_id))
    assert not await running.storage.exists(place_of(broken_off))
    assert await files.page(running.redis, "a", None, 10, "asc") == ([], None)
    assert await batches.waiting(running.redis) == []
