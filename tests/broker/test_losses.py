"""The producer's end when the queue loses its data, hangs, or comes back as another: nobody is left to wait."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import ModelNotFound, Unavailable
from infinity_pool.broker.messages import Job
from infinity_pool.broker.outbox import Outbox, QueueLimits, Ticket
from tests.broker.conftest import Echo
from tests.end_to_end.redis_server import RedisServer


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server that may be frozen and killed."""
    with EmbeddedServer.start(tmp_path) as server:
        yield server
        process_of(server).send_signal(signal.SIGCONT)


def process_of(server: EmbeddedServer) -> subprocess.Popen[bytes]:
    assert server.process
    return server.process


async def test_a_model_is_remembered_after_a_loss_of_data(client: QueueClient, redis: Redis) -> None:
    """Its workers will be back with their next heartbeat: 503 and Retry-After, not 404, which nobody tries again."""
    await client.embed("m", "a")
    await redis.flushall()
    await client.models()

    with pytest.raises(Unavailable):
        await client.embed("m", "a")
    with pytest.raises(ModelNotFound):
        await client.embed("other", "a")


async def test_a_queue_that_hangs_is_as_good_as_away(own: EmbeddedServer) -> None:
    echo = Echo(own.url)
    await echo.start()
    async with QueueClient(own.url) as client:
        await client.models()
        process_of(own).send_signal(signal.SIGSTOP)
        began = time.monotonic()
        calls = [asyncio.create_task(client.embed("m", "a"))]
        await asyncio.sleep(1)
        calls.append(asyncio.create_task(client.embed("m", "b")))  # while the first hangs in its write
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 2
        assert time.monotonic() - began < 6

        process_of(own).send_signal(signal.SIGCONT)
        async with asyncio.timeout(5):
            while await echo.redis.xlen(keys.jobs("m", "online")):  # what was written all the same is taken back
                await asyncio.sleep(0.02)
    await echo.close()


async def test_a_restart_is_noticed_however_long_it_takes(tmp_path: Path) -> None:
    """Back with its data but for the last write, it has the reply channel and not the job, which is queued again."""
    server, jobs = RedisServer(tmp_path, durable=True), keys.jobs("m", "online")
    echo = Echo(server.url)
    await echo.start()
    async with QueueClient(server.url) as client:
        await client.models()
        call = asyncio.create_task(client.embed("m", "a"))
        while not server.commands.xlen(jobs):
            await asyncio.sleep(0.01)
        server.ask("XTRIM", jobs, "MAXLEN", 0)
        server.kill()
        await asyncio.sleep(1)  # a few tries in vain
        server.start()
        async with asyncio.timeout(5):
            while not server.commands.xlen(jobs):
                await asyncio.sleep(0.02)
        call.cancel()
    await echo.close()
    server.close()


async def test_what_was_being_written_when_data_was_lost_is_written_again(redis: Redis) -> None:
    """Its entry may be among what was lost; if it is not, it is run twice, and answered once."""
    losses = iter([0, 1, 1, 1])
    outbox = Outbox(redis, "m", lambda: QueueLimits(tokens=1000), lambda: next(losses))
    job = Job("id", "embed", ["text"], {}, "replies", "online", 1, 1000)
    outbox.add([Ticket("m", job, asyncio.get_running_loop().create_future())])
    writing = asyncio.create_task(outbox.run())
    await outbox.flush(5)
    writing.cancel()
    assert await redis.xlen(keys.jobs("m", "online")) == 2


async def test_what_breaks_in_a_client_begins_anew(client: QueueClient, caplog: pytest.LogCaptureFixture) -> None:
    """A task that ended for good would leave every later caller waiting."""

    async def break_once() -> None:
        if not caplog.text:
            raise ZeroDivisionError
        done.set()

    done = asyncio.Event()
    client._start(break_once, "a test")
    async with asyncio.timeout(5):
        await done.wait()
    assert "a test broke, and begins anew" in caplog.text
    assert (await client.embed("m", "four")).tolist() == [4, 4, 4]
