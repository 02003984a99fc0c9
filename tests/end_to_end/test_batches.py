"""A batch goes on, each of its requests answered once, whatever is killed."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from .patience import until
from .processes import Api, Pool, Worker, alive
from .redis_server import RedisServer

LINES = 250
BODIES = [{"model": "m", "input": "x" * (1 + place % 9)} for place in range(LINES)]
WRONG = {"model": "m", "input": "x", "dimensions": 99}


def lines() -> bytes:
    """Give a batch of which every tenth request is wrong."""
    bodies = [WRONG if place % 10 == 9 else body for place, body in enumerate(BODIES)]
    request = {"method": "POST", "url": "/v1/embeddings"}
    return b"\n".join(json.dumps({"custom_id": f"{n}", **request, "body": b}).encode() for n, b in enumerate(bodies))


def begun(client: openai.OpenAI) -> str:
    """Upload a batch and begin it; gives its id."""
    file = client.files.create(file=("requests.jsonl", lines()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h").id


def check(client: openai.OpenAI, batch_id: str) -> None:
    """See that each request is in the output or the errors, once, in order and with its own answer."""
    batch = client.batches.retrieve(batch_id)
    assert batch.status == "completed"
    assert batch.output_file_id
    assert batch.error_file_id
    output, errors = (
        [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
        for file_id in (batch.output_file_id, batch.error_file_id)
    )
    assert [line["custom_id"] for line in output] == [f"{n}" for n in range(LINES) if n % 10 != 9]
    assert [line["custom_id"] for line in errors] == [f"{n}" for n in range(LINES) if n % 10 == 9]
    assert batch.usage
    assert batch.usage.input_tokens == sum(line["response"]["body"]["usage"]["total_tokens"] for line in output)
    for line in output:
        [entry] = line["response"]["body"]["data"]
        assert entry["embedding"][0] == len(BODIES[int(line["custom_id"])]["input"])


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none")


def far(client: openai.OpenAI, batch_id: str) -> Callable[[], bool]:
    """Give a condition: some of a batch is put down, and not all."""

    def is_far() -> bool:
        counts = client.batches.retrieve(batch_id).request_counts
        return counts is not None and 0 < counts.completed < LINES * 0.7

    return is_far


def ended(client: openai.OpenAI, batch_id: str) -> Callable[[], bool]:
    return lambda: client.batches.retrieve(batch_id).status == "completed"


async def everything_is_killed(folder: Path, start: Callable[..., Any]) -> None:
    """Kill all of a machine, and start it again on its folder."""
    options = ["--model", "dummy:0.01", "--engine", "dummy", "--served-model-name", "m", "--files", str(folder)]
    pool = start(Pool, *options).ready()
    with client_of(pool.url) as client:
        batch_id = begun(client)
        await until(far(client, batch_id))
    everything = [process for part in pool.parts().values() for process in part]
    for process in everything:
        process.kill()
    await until(lambda: not alive(everything))

    pool = start(Pool, *options).ready()
    with client_of(pool.url) as client:
        await until(ended(client, batch_id), 40)
        check(client, batch_id)
        assert [*folder.glob("parts/*")] == []


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, durable=True)
    yield server
    server.close()


async def replica_and_queue_are_killed(folder: Path, queue: RedisServer, start: Callable[..., Any]) -> None:
    """Kill the replica that runs a batch, and the queue, where there is another replica."""
    first = start(Api, queue.url, "--files", str(folder))
    start(Worker, queue.url, "m", model="dummy:0.01").expect(" is ready: ")
    with client_of(first.ready().url) as client:
        batch_id = begun(client)
        await until(far(client, batch_id))
    second = start(Api, queue.url, "--files", str(folder))
    second.ready()
    first.process.kill()
    queue.kill()
    queue.start()
    with client_of(second.url) as client:
        await until(ended(client, batch_id), 40)
        check(client, batch_id)


async def test_a_batch_goes_on_whatever_is_killed(
    tmp_path: Path, queue: RedisServer, start: Callable[..., Any]
) -> None:
    await (
        asyncio.gather(  # at the same time, as both wait for claims to expire, and each in a thread, as starting blocks
            asyncio.to_thread(asyncio.run, everything_is_killed(tmp_path / "one", start)),
            asyncio.to_thread(asyncio.run, replica_and_queue_are_killed(tmp_path / "many", queue, start)),
        )
    )
