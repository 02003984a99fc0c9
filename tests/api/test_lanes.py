"""Which lane a request goes on, at every endpoint that asks a model for something."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from infinity_pool.broker.errors import WorkerFailed
from infinity_pool.broker.messages import LANES, Lane
from tests.api.conftest import Held

TASKS = ("embed", "rerank", "classify", "sparse", "multivector")
FEW, MANY = ["a"] * 8, ["a"] * 9
PAIRS = [["a", "b"]] * 9
DOCUMENTS = ["a document"] * 2000


@pytest.fixture
async def model(queue_url: str) -> AsyncIterator[Held]:
    worker = Held(queue_url, TASKS)
    await worker.join()
    yield worker
    await worker.close()


@pytest.mark.parametrize(
    ("path", "body", "lane"),
    [
        ("/v1/embeddings", {"input": FEW}, "online"),
        ("/v1/embeddings", {"input": MANY}, "bulk"),
        ("/embed", {"inputs": MANY}, "bulk"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": FEW}}, "bulk"),
        ("/v2/embed", {"texts": MANY, "input_type": "search_query", "embedding_types": ["float"]}, "bulk"),
        ("/sparse", {"input": MANY}, "bulk"),
        ("/embed_sparse", {"inputs": MANY}, "bulk"),
        ("/pooling", {"input": MANY}, "bulk"),
        ("/classify", {"input": FEW}, "online"),
        ("/classify", {"input": MANY}, "bulk"),
        ("/classify", {"input": PAIRS}, "online"),
        ("/predict", {"inputs": [[text] for text in MANY]}, "bulk"),
        ("/predict", {"inputs": PAIRS}, "online"),
        ("/rerank", {"query": "q", "documents": DOCUMENTS[:400]}, "online"),
        ("/rerank", {"query": "q", "documents": DOCUMENTS}, "bulk"),
        ("/rerank", {"query": "q", "texts": DOCUMENTS}, "bulk"),
        ("/v1/rerank", {"query": "q", "documents": DOCUMENTS}, "bulk"),
        ("/v2/rerank", {"query": "q", "documents": DOCUMENTS}, "bulk"),
        ("/score", {"text_1": "q", "text_2": DOCUMENTS, "task": "rerank"}, "bulk"),
        ("/score", {"text_1": MANY, "text_2": MANY, "task": "rerank"}, "online"),
        ("/score", {"text_1": [*FEW, "b"], "text_2": MANY, "task": "rerank"}, "bulk"),
        ("/tokenize", {"inputs": FEW}, "online"),
        ("/tokenize", {"inputs": MANY}, "bulk"),
        ("/decode", {"ids": [[1, 2]] * 8}, "online"),
        ("/decode", {"ids": [[1, 2]] * 9}, "bulk"),
    ],
)
async def test_a_large_request_goes_bulk(
    path: str, body: dict[str, Any], lane: Lane, http: aiohttp.ClientSession, model: Held
) -> None:
    other = next(name for name in LANES if name != lane)

    assert await _lane(http, model, path, body) == lane
    assert await _lane(http, model, path, body, {"X-Infinity-Lane": other}) == other


async def _lane(
    http: aiohttp.ClientSession, model: Held, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> str:
    """Give the lane on which a worker finds what is asked for, which it refuses."""
    async with asyncio.timeout(30):
        asking = asyncio.create_task(http.post(path, json={"model": model.model, **body}, headers=headers))
        while not any((waiting := await model.waiting()).values()):
            assert not asking.done(), await (await asking).text()
            await asyncio.sleep(0.01)
        lane: Lane = "online" if waiting["online"] else "bulk"
        assert not all(waiting.values())
        await model.refuse(await model.take(lane), WorkerFailed("not now"))
        async with await asking as answer:
            assert answer.status >= 500
        while any((await model.waiting()).values()):  # the other jobs of the request are taken back
            await asyncio.sleep(0.01)
    return lane
