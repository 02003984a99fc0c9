"""OpenAI's own client, unchanged, has files of requests answered by a real server and a real worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai.types import Batch

from infinity_pool.broker import keyring
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer

from .conformity import check
from .conftest import Api, Held, Process, until

CALLERS = (
    Caller(name="root", admin=True),
    Caller(name="alice"),
    Caller(name="bob"),
    Caller(name="elsewhere", models=("other",)),
    Caller(name="online", lanes=("online",)),
    Caller(name="few", requests_per_minute=600),
    Caller(name="leaver"),
    Caller(name="counted"),
)


class Server:
    """A replica with files and keys, on a queue of its own with a worker."""

    def __init__(self, url: str, folder: Path) -> None:
        self.queue_url = url
        self.folder = folder
        self.keys = asyncio.run(_add_keys(url))
        options = ["--engine", "dummy", "--model", "dummy", "--served-model-name", "m", "--redis-url", url]
        self.worker = Process("worker", *options)
        self.api = Api(url, "--files", f"file://{folder}", "--strict-model-names", "--max-batch-requests", "700")
        self.worker.expect(" is ready: ")

    def client(self, key: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.api.url}/v1", api_key=self.keys[key], max_retries=0)


async def _add_keys(url: str) -> dict[str, str]:
    async with connect(url) as redis:
        return {one.name: await keyring.add(redis, one, "someone@somewhere") for one in CALLERS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with EmbeddedServer.start() as queue:
        server = Server(queue.url, tmp_path_factory.mktemp("files"))
        yield server
        assert not [line for line in server.api.log if "ERROR" in line]
        server.api.stop()
        server.worker.stop()


@pytest.fixture
async def alice(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with server.client("alice") as client:
        yield client


@pytest.fixture
async def slow(server: Server) -> AsyncIterator[Held]:
    """A model that answers when the test says so."""
    worker = Held(server.queue_url)
    await worker.join()
    yield worker
    await worker.close()


def request(name: str, body: Any, url: str = "/v1/embeddings") -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def embed(text: Any, model: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": model, "input": text, **more}


async def begin(
    client: openai.AsyncOpenAI, lines: Sequence[Any], window: str = "24h", endpoint: str = "/v1/embeddings", **more: Any
) -> Batch:
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    file = await client.files.create(file=("requests.jsonl", data), purpose="batch")
    asked: Any = {"endpoint": endpoint, "completion_window": window}
    return await client.batches.create(input_file_id=file.id, **asked, **more)


async def ended(client: openai.AsyncOpenAI, batch: Batch) -> Batch:
    """Wait for a batch to end; gives it as it is then."""
    found = [batch]

    async def is_over() -> bool:
        found[0] = await client.batches.retrieve(batch.id)
        return found[0].status in ("completed", "failed", "expired", "cancelled")

    await until(is_over)
    check("/batches/{id}", 200, found[0].model_dump(), "get")
    return found[0]


async def content(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id
    return [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]


def telling(
    condition: Callable[[Batch], bool], client: openai.AsyncOpenAI, batch: Batch
) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return condition(await client.batches.retrieve(batch.id))

    return is_so


async def test_answers_are_those_of_the_endpoint(server: Server, alice: openai.AsyncOpenAI) -> None:
    bodies = [
        embed("four"),
        embed("four", encoding_format="base64", dimensions=3),
        embed("x" * 5000, truncate=False),
        embed("a", normalize=False),
        embed("x" * 5000),
        {"model": "m", "input": ["a" * place for place in range(1, 1000)], "encoding_format": "float"},
    ]
    begun = await begin(alice, [request(f"r{n}", body) for n, body in enumerate(bodies)], metadata={"for": "test"})
    batch = await ended(alice, begun)

    assert (batch.status, batch.model, batch.metadata) == ("completed", "m", {"for": "test"})
    assert batch.request_counts
    assert batch.request_counts.to_dict() == {"total": 6, "completed": 4, "failed": 2}
    times = [batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at]
    assert times == sorted(time for time in times if time)
    assert batch.expires_at == batch.created_at + 86_400

    lines: dict[str, Any] = {
        line["custom_id"]: line
        for file in (batch.output_file_id, batch.error_file_id)
        for line in await content(alice, file)
    }
    assert [line for line in lines if line in ("r2", "r3")] == ["r2", "r3"]
    answers = [line["response"]["body"] for line in lines.values()]
    assert batch.usage
    assert batch.usage.total_tokens == sum(body["usage"]["total_tokens"] for body in answers if "usage" in body) > 1000
    async with aiohttp.ClientSession(server.api.url, headers=alice.auth_headers) as http:
        for number, body in enumerate(bodies):
            async with http.post("/v1/embeddings", json=body) as response:
                line = lines[f"r{number}"]
                assert line.keys() == {"id", "custom_id", "response", "error"}
                assert line["error"] is None
                assert line["response"]["status_code"] == response.status
                assert comparable(line["response"]["body"]) == comparable(await response.json())


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("id", "created")}


async def test_the_work_is_counted_as_the_keys_own(server: Server) -> None:
    async def is_counted() -> bool:
        async with http.get("/usage") as response:
            data = (await response.json())["data"]
        return [(used["requests"], used["items"]) for used in data] == [(20, 40)]

    async with server.client("counted") as client:
        await ended(client, await begin(client, [request(f"{n}", embed(["a", "b"])) for n in range(20)]))
        async with aiohttp.ClientSession(server.api.url, headers=client.auth_headers) as http:
            await until(is_counted)


async def test_another_endpoint_in_its_own_words(alice: openai.AsyncOpenAI) -> None:
    bodies: list[Any] = [{"model": "m", "query": "a", "documents": ["b"]}, {"model": "m", "query": "a", "texts": ["b"]}]
    lines = [request(f"{n}", body, "/rerank") for n, body in enumerate(bodies)]
    batch = await ended(alice, await begin(alice, lines, endpoint="/rerank"))

    assert (batch.status, batch.output_file_id) == ("completed", None)
    as_infinity, as_tei = [line["response"]["body"] for line in await content(alice, batch.error_file_id)]
    assert "cannot rerank" in as_infinity["error"]["message"]
    assert as_tei["error_type"] == "Validation"


async def test_wrong_lines_are_named_and_nothing_is_run(alice: openai.AsyncOpenAI) -> None:
    good = request("good", embed("a"))
    wrong: list[tuple[Any, str | None, str]] = [
        (b"{", None, "is no JSON"),
        (b"[]", None, "is no JSON object"),
        ({**good, "custom_id": None}, "custom_id", "valid string"),
        (good, "custom_id", "given twice"),
        ({**request("a", embed("a")), "method": "GET"}, "method", "POST"),
        (request("b", embed("a"), "/v1/rerank"), "url", "/v1/embeddings"),
        (request("c", embed("a", "other")), "body.model", "'m', not 'other'"),
        (request("d", {"model": "m"}), "input", "required"),
        (request("e", []), "body", "dictionary"),
        (
            json.dumps(request("f", embed("a", x="x"))).replace('"x"}', f"{'[' * 500}{']' * 500}}}").encode(),
            "body",
            "deeply",
        ),
    ]
    batch = await ended(alice, await begin(alice, [good, b"", *(line for line, _, _ in wrong)]))

    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at
    assert batch.errors
    assert batch.errors.data
    assert [error.line for error in batch.errors.data] == [*range(3, 3 + len(wrong))]
    for error, (_, param, message) in zip(batch.errors.data, wrong, strict=True):
        assert error.param == param
        assert message in (error.message or "")


@pytest.mark.parametrize(("count", "code"), [(0, "empty_file"), (701, "too_many_requests")])
async def test_none_and_too_many(alice: openai.AsyncOpenAI, count: int, code: str) -> None:
    batch = await ended(alice, await begin(alice, [request(f"{n}", embed("a")) for n in range(count)]))
    assert batch.errors
    assert batch.errors.data
    assert [error.code for error in batch.errors.data] == [code]


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"endpoint": "/v1/chat/completions"}, "endpoint"),
        ({"completion_window": "24"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
    ],
)
async def test_what_cannot_be_asked(alice: openai.AsyncOpenAI, changed: dict[str, Any], param: str) -> None:
    file = await alice.files.create(file=("a", b"a"), purpose="batch")
    asked: Any = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h"} | changed
    with pytest.raises(openai.APIStatusError) as caught:
        await alice.batches.create(**asked)
    assert (caught.value.status_code, caught.value.param) == (404 if "input_file_id" in changed else 400, param)


async def test_cancelled(alice: openai.AsyncOpenAI, slow: Held) -> None:
    begun = await begin(alice, [request(f"{n}", embed("a", slow.model)) for n in range(4)])
    for _ in range(2):
        await slow.answer(await slow.take("bulk"))
    await until(telling(lambda batch: batch.request_counts.completed == 2, alice, begun))  # type: ignore[union-attr]
    with pytest.raises(openai.BadRequestError, match=f"is read by {begun.id}"):
        await alice.files.delete(begun.input_file_id)
    assert (await alice.batches.cancel(begun.id)).status in ("cancelling", "cancelled")

    batch = await ended(alice, begun)

    assert batch.status == "cancelled"
    assert batch.cancelling_at
    assert batch.cancelled_at
    assert batch.request_counts
    assert batch.request_counts.to_dict() == {"total": 4, "completed": 2, "failed": 2}
    done, rest = await content(alice, batch.output_file_id), await content(alice, batch.error_file_id)
    assert sorted(line["custom_id"] for line in done + rest) == ["0", "1", "2", "3"]
    assert [(line["response"], line["error"]["code"]) for line in rest] == [(None, "batch_cancelled")] * 2
    assert await slow.waiting() == {"online": 0, "bulk": 0}
    assert (await alice.batches.cancel(begun.id)).status == "cancelled"
    assert (await alice.files.delete(begun.input_file_id)).deleted


async def test_expired(alice: openai.AsyncOpenAI, slow: Held) -> None:
    batch = await ended(alice, await begin(alice, [request(f"{n}", embed("a", slow.model)) for n in range(4)], "1s"))

    assert (batch.status, batch.output_file_id) == ("expired", None)
    assert batch.expired_at
    assert batch.request_counts
    assert batch.request_counts.to_dict() == {"total": 4, "completed": 0, "failed": 4}
    rest = await content(alice, batch.error_file_id)
    assert [(line["custom_id"], line["error"]["code"]) for line in rest] == [
        (f"{n}", "batch_expired") for n in range(4)
    ]
    with pytest.raises(openai.BadRequestError, match="is expired"):
        await alice.batches.cancel(batch.id)


async def test_a_key_sees_its_own_and_who_administers_sees_all(server: Server, alice: openai.AsyncOpenAI) -> None:
    made = [await ended(alice, await begin(alice, [request("a", embed("a"))])) for _ in range(2)]
    async with server.client("bob") as bob, server.client("root") as root:
        assert [file async for file in bob.files.list()] == []
        assert [batch async for batch in bob.batches.list()] == []
        for refused in (
            bob.batches.retrieve(made[0].id),
            bob.batches.cancel(made[0].id),
            bob.files.retrieve(made[0].input_file_id),
            bob.files.content(made[0].input_file_id),
            bob.files.delete(made[0].input_file_id),
            bob.batches.create(input_file_id=made[0].input_file_id, endpoint="/v1/embeddings", completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                await refused
        assert (await root.batches.retrieve(made[0].id)).id == made[0].id
    newest = [batch.id async for batch in alice.batches.list(limit=1)]
    assert newest[:2] == [made[1].id, made[0].id]


@pytest.mark.parametrize(("key", "why"), [("elsewhere", "not for model 'm'"), ("online", "not for the bulk lane")])
async def test_what_a_key_may_not(server: Server, key: str, why: str) -> None:
    async with server.client(key) as client:
        batch = await ended(client, await begin(client, [request("a", embed("a"))]))
    assert batch.errors
    assert batch.errors.data
    assert (batch.status, batch.errors.data[0].code) == ("failed", "forbidden")
    assert why in (batch.errors.data[0].message or "")


async def test_a_batch_waits_where_its_key_has_asked_for_too_much(server: Server) -> None:
    async with server.client("few") as client:
        batch = await ended(client, await begin(client, [request(f"{n}", embed("a")) for n in range(605)]))
    assert batch.request_counts
    assert batch.request_counts.to_dict() == {"total": 605, "completed": 605, "failed": 0}


async def test_a_batch_fails_when_its_key_is_revoked(server: Server, slow: Held) -> None:
    async with server.client("leaver") as client, server.client("root") as root:
        begun = await begin(client, [request(f"{n}", embed("a", slow.model)) for n in range(300)])
        await slow.take("bulk")
        async with connect(server.queue_url) as redis:
            await keyring.revoke(redis, "leaver", "someone@somewhere")
        batch = await ended(root, begun)
    assert batch.errors
    assert batch.errors.data
    assert (batch.status, batch.errors.data[0].code) == ("failed", "unauthorized")
    assert "'leaver'" in (batch.errors.data[0].message or "")


async def test_metrics(server: Server) -> None:
    async with aiohttp.ClientSession(server.api.url) as http, http.get("/metrics") as response:
        told = await response.text()
    for status in ("completed", "failed", "expired", "cancelled"):
        assert f'infinity_batches_total{{status="{status}"}}' in told
    assert "infinity_batches_in_progress 0.0" in told
    assert [*server.folder.glob("parts/*")] == []
