"""/rerank and /classify over HTTP and by every client, with real models that know a little English."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from infinity_pool import Client, SyncClient
from infinity_pool.api.clients.client import AnyClient
from infinity_pool.broker.answers import Label, Ranked
from infinity_pool.broker.errors import InvalidInput
from tests.api import conformity
from tests.api.conftest import PATIENCE, Api, Process, _until_ready
from tests.fine_tuned import save_classifier, save_reranker, transformers
from tests.prepared import prepared

QUERY = "what is the capital of France"
PARIS = "Paris is the capital of France"
DOCUMENTS = ["bananas are yellow", PARIS, "the radio plays music all day"]
TEXTS = ["the striker kicked the ball into the net", "heavy rain and thunder tonight", "cook the rice with butter"]
LABELS = {"sport", "food", "weather"}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {"reranker": save_reranker(root / "reranker"), "classifier": save_classifier(root / "classifier")}


@pytest.fixture(scope="module")
def served(folders: dict[str, Path], idle_api: Api, worker: Process, queue_url: str) -> Iterator[Api]:
    """An API with a worker of each model, and with model `m`, which makes vectors of nothing."""
    workers = []
    for name, folder in folders.items():
        options = ["--served-model-name", name, "--batch-tokens", "512", "--redis-url", queue_url]
        workers.append(Process("worker", *prepared(folder), *options))
    for name in ("m", *folders):
        asyncio.run(_until_ready(idle_api.url, name, 4 * PATIENCE))  # a first start imports, describes and measures
    yield idle_api
    for process in workers:
        process.stop()


@pytest.fixture
async def ask(served: Api) -> AsyncIterator[Ask]:
    """Post a body, and give status and answer."""
    async with aiohttp.ClientSession(served.url) as session:

        async def post(path: str, **body: Any) -> tuple[int, Any]:
            async with session.post(path, json=body) as response:
                answer = await response.json()
            conformity.check(path, response.status, answer)
            return response.status, answer

        yield post


@pytest.fixture(params=["queue", "http"])
def target(request: pytest.FixtureRequest, queue_url: str, served: Api) -> str:
    return queue_url if request.param == "queue" else served.url


@pytest.fixture
async def client(target: str) -> AsyncIterator[AnyClient]:
    async with Client(target) as client:
        yield client


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> list[float]:
    """The network's own scores of DOCUMENTS, by transformers alone."""
    return list(_logits(folders["reranker"], [QUERY] * 3, DOCUMENTS)[:, 0].tolist())


def _logits(folder: Path, *texts: list[str]) -> Any:
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return network(**tokenizer(*texts, padding=True, return_tensors="pt")).logits.detach().numpy()


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
async def test_rerank(path: str, ask: Ask, folders: dict[str, Path], expected: list[float]) -> None:
    status, answer = await ask(path, model="reranker", query=QUERY, documents=DOCUMENTS)

    assert status == 200
    assert (answer["object"], answer["model"]) == ("rerank", "reranker")
    assert answer["id"].startswith("infinity-")
    assert abs(answer["created"] - time.time()) < 60
    results = answer["results"]
    assert results[0]["index"] == 1
    assert sorted(one["index"] for one in results) == [0, 1, 2]
    assert [one["document"] for one in results] == [None] * 3
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True)
    logits = np.array([expected[one["index"]] for one in results])
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits)), atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["reranker"])
    tokens = sum(map(len, tokenizer([QUERY] * 3, DOCUMENTS)["input_ids"]))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_the_best_in_every_order_at_once(ask: Ask) -> None:
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    asks = [
        ask(
            "/rerank",
            model="reranker",
            query=QUERY,
            documents=[DOCUMENTS[place] for place in order],
            top_n=1,
            return_documents=True,
        )
        for order in orders
    ]

    for order, (status, answer) in zip(orders, await asyncio.gather(*asks), strict=True):
        assert status == 200
        [one] = answer["results"]
        assert (one["index"], one["document"]) == (order.index(1), PARIS)


@pytest.mark.parametrize(("top_n", "found"), [(1, 1), (2, 2), (8000, 3), (None, 3)])
async def test_top_n(top_n: int | None, found: int, ask: Ask) -> None:
    status, answer = await ask("/rerank", model="reranker", query=QUERY, documents=DOCUMENTS, top_n=top_n)
    assert (status, len(answer["results"])) == (200, found)


async def test_raw_scores(ask: Ask, expected: list[float]) -> None:
    _, answer = await ask("/rerank", model="reranker", query=QUERY, documents=DOCUMENTS, raw_scores=True)
    scores = {one["index"]: one["relevance_score"] for one in answer["results"]}
    np.testing.assert_allclose([scores[place] for place in range(3)], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"top_n": 0}, "top_n"),
        ({"top_n": -1}, "top_n"),
        ({"top_n": "2"}, "top_n"),
        ({"documents": []}, "documents"),
        ({"documents": "one"}, "documents"),
        ({"documents": ["a", {"title": "a"}]}, "documents[1]"),
        ({"documents": ["a", 1]}, "documents[1]"),
        ({"documents": None}, "documents"),
        ({"rank_fields": []}, "rank_fields"),
        ({"max_tokens_per_doc": 3}, "max_tokens_per_doc"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"query": None}, "query"),
        ({"query": "x" * 50_000, "documents": ["a"] * 100}, "query"),
        ({"return_documents": "yes"}, "return_documents"),
        ({"raw_scores": 1}, "raw_scores"),
        ({"instruction": "Find cats"}, "instruction"),
        ({"model": "m"}, "model"),
        ({"model": "classifier"}, "model"),
    ],
)
async def test_what_cannot_be_reranked(changed: dict[str, Any], param: str, ask: Ask) -> None:
    body = {"model": "reranker", "query": QUERY, "documents": DOCUMENTS} | changed

    status, answer = await ask("/rerank", **body)

    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, "invalid_input")


async def test_a_query_that_leaves_no_room(ask: Ask) -> None:
    status, answer = await ask("/rerank", model="reranker", query="word " * 600, documents=DOCUMENTS)

    assert (status, answer["error"]["param"], answer["error"]["code"]) == (422, "query", "unprocessable")


async def test_what_a_reranker_cannot_do(ask: Ask) -> None:
    for path in ("/embeddings", "/classify"):
        status, answer = await ask(path, model="reranker", input=["a"])
        assert (status, answer["error"]["param"]) == (400, "model")
        assert "only rerank" in answer["error"]["message"]


async def test_absent(ask: Ask) -> None:
    assert (await ask("/rerank", model="absent", query="a", documents=["b"]))[0] == 404
    assert (await ask("/classify", model="absent", input=["b"]))[0] == 404


async def test_what_was_cut_and_by_whom(served: Api) -> None:
    async with aiohttp.ClientSession(served.url) as session:
        body = {"model": "reranker", "query": QUERY, "documents": ["word " * 600, "a", "word " * 700]}
        async with session.post("/rerank", json=body, headers={"X-Infinity-Lane": "bulk"}) as response:
            assert response.status == 200
            assert response.headers["X-Infinity-Truncated"] == "2"
            assert response.headers["X-Infinity-Fingerprint"]
        async with session.get("/ready?model=reranker&deep=1") as response:
            assert response.status == 200
        async with session.get("/ready?model=classifier&deep=1") as response:
            assert response.status == 200


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
async def test_classify(path: str, ask: Ask, folders: dict[str, Path]) -> None:
    status, answer = await ask(path, model="classifier", input=TEXTS)

    assert (status, answer["object"], answer["model"]) == (200, "classify", "classifier")
    assert answer["id"].startswith("infinity-")
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 20
    assert [row[0]["label"] for row in answer["data"]] == ["sport", "weather", "food"]
    pipeline = transformers.pipeline("text-classification", model=str(folders["classifier"]), device="cpu")
    for row, own in zip(answer["data"], pipeline(TEXTS, top_k=None), strict=True):
        assert [one["label"] for one in row] == [one["label"] for one in own]
        np.testing.assert_allclose([one["score"] for one in row], [one["score"] for one in own], atol=1e-5)


async def test_raw_scores_of_labels(ask: Ask, folders: dict[str, Path]) -> None:
    _, answer = await ask("/classify", model="classifier", input=TEXTS, raw_scores=True)

    logits = -np.sort(-_logits(folders["classifier"], TEXTS), axis=1)
    np.testing.assert_allclose([[one["score"] for one in row] for row in answer["data"]], logits, atol=1e-5)


async def test_many_texts_and_a_pair(ask: Ask) -> None:
    status, answer = await ask("/classify", model="classifier", input=[TEXTS[0], [TEXTS[1], TEXTS[1]], *TEXTS * 50])
    assert status == 200
    assert len(answer["data"]) == 152
    assert [row[0]["label"] for row in answer["data"][:3]] == ["sport", "weather", "sport"]
    assert all({one["label"] for one in row} == LABELS for row in answer["data"])


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ["a", 1]}, "input[1]"),
        ({"input": [["a", "b", "c"]]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": None}, "input"),
        ({"raw_scores": "yes"}, "raw_scores"),
        ({"model": "m"}, "model"),
    ],
)
async def test_what_cannot_be_classified(changed: dict[str, Any], param: str, ask: Ask) -> None:
    status, answer = await ask("/classify", **({"model": "classifier", "input": TEXTS} | changed))

    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, "invalid_input")


async def test_every_client_maps_alike(client: AnyClient, expected: list[float]) -> None:
    pairs = [[QUERY, document] for document in DOCUMENTS] * 3

    scores = [one async for one in client.map("reranker", pairs, task="rerank", options={"raw_scores": True})]
    fits = [one async for one in client.map("classifier", TEXTS, task="classify")]

    np.testing.assert_allclose([one.output for one in scores], expected * 3, atol=1e-5)
    labels = await client.labels("classifier")
    for one, row in zip(fits, await client.classify("classifier", TEXTS), strict=True):
        assert dict(zip(labels, one.output.tolist(), strict=True)) == pytest.approx(dict(row), abs=1e-5)


async def test_every_client_ranks_alike(client: AnyClient, expected: list[float]) -> None:
    found = await client.rerank("reranker", QUERY, DOCUMENTS, raw_scores=True)

    assert isinstance(found[0], Ranked)
    assert [one.index for one in found] == np.argsort(-np.array(expected)).tolist()
    np.testing.assert_allclose([one.score for one in found], sorted(expected, reverse=True), atol=1e-5)
    assert [one.index for one in await client.rerank("reranker", QUERY, DOCUMENTS, top_n=1)] == [1]
    many = ["tea is grown in China"] * 300
    many[270] = PARIS
    assert [one.index for one in await client.rerank("reranker", QUERY, many, top_n=3, lane="bulk")] == [270, 0, 1]


async def test_every_client_classifies_alike(client: AnyClient) -> None:
    found = await client.classify("classifier", TEXTS)

    assert [row[0].label for row in found] == ["sport", "weather", "food"]
    assert all(isinstance(one, Label) for row in found for one in row)
    assert sum(one.score for one in found[0]) == pytest.approx(1)
    raw = await client.classify("classifier", TEXTS, raw_scores=True)
    assert raw[0][0].score != found[0][0].score


async def test_every_client_says_what_is_wrong(client: AnyClient) -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: client.rerank("reranker", QUERY, []), "documents"),
        (lambda: client.rerank("reranker", QUERY, "one document"), "documents"),
        (lambda: client.rerank("reranker", QUERY, DOCUMENTS, top_n=0), "top_n"),
        (lambda: client.rerank("reranker", "word " * 600, DOCUMENTS), "query"),
        (lambda: client.classify("classifier", []), "input"),
        (lambda: client.classify("classifier", "one text"), "input"),
    ]
    for asked, param in wrong:
        with pytest.raises(InvalidInput) as caught:
            await asked()
        assert (caught.value.param, caught.value.item) == (param, None)
    with pytest.raises(InvalidInput, match="cannot rerank, only classify"):
        await client.rerank("classifier", QUERY, DOCUMENTS)


def test_sync(target: str) -> None:
    with SyncClient(target) as client:
        assert client.rerank("reranker", QUERY, DOCUMENTS, top_n=1)[0].index == 1
        assert client.classify("classifier", TEXTS)[1][0].label == "weather"
