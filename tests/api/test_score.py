"""/sparse, /pooling and /score, through a real API and queue, with real workers of tiny models."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import beat
from infinity_pool.workers.interface import Engine, Family
from tests.api import conformity
from tests.api.conftest import PATIENCE, Api, Held, Process, _until_ready
from tests.prepared import prepared
from tests.tiny_late_interaction import DIM, save_bge_m3, save_pylate
from tests.workers.conftest import load_here, run

TEXTS = ["What is the capital of France?", "a cat sits on the mat", "hello"]
Loaded = dict[str, tuple[Family, Engine]]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {"bge": save_bge_m3(root / "bge"), "colbert": save_pylate(root / "colbert")}


@pytest.fixture(scope="module")
def here(folders: dict[str, Path]) -> Loaded:
    """The same models in this process, to compare with."""
    return {name: load_here(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def served(folders: dict[str, Path], here: Loaded, idle_api: Api, worker: Process, queue_url: str) -> Iterator[Api]:
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


def tokens_of(loaded: tuple[Family, Engine], task: str, texts: list[str], **options: Any) -> int:
    family, _ = loaded
    return int(family.prepare(family.head(task, options), texts, options).lengths.sum())


@pytest.mark.parametrize("path", ["/sparse", "/v1/sparse"])
async def test_sparse(path: str, ask: Ask, here: Loaded) -> None:
    status, answer = await ask(path, model="bge", input=TEXTS, top_k=3)

    expected = run(*here["bge"], "sparse", TEXTS, top_k=3)
    assert (status, answer["object"], answer["model"]) == (200, "list", "bge")
    for index, entry in enumerate(answer["data"]):
        indices, values = expected[index]
        assert (entry["object"], entry["index"], entry["indices"]) == ("sparse", index, indices.tolist())
        np.testing.assert_allclose(entry["values"], values, atol=1e-5)
    tokens = tokens_of(here["bge"], "sparse", TEXTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize("encoding", ["float", "base64", None])
@pytest.mark.parametrize("side", ["query", "document", None])
async def test_matrices(side: str | None, encoding: str | None, ask: Ask, here: Loaded) -> None:
    status, answer = await ask("/v1/pooling", model="colbert", input=TEXTS, input_type=side, encoding_format=encoding)

    assert (status, answer["object"], answer["model"]) == (200, "list", "colbert")
    expected = run(*here["colbert"], "multivector", TEXTS, input_type=side)
    for entry, matrix in zip(answer["data"], expected, strict=True):
        data = np.frombuffer(b64decode(entry["data"]), "<f4") if encoding == "base64" else np.array(entry["data"])
        assert (entry["object"], entry["shape"]) == ("pooling", list(matrix.shape))
        assert encoding == "base64" or data.shape == matrix.shape
        np.testing.assert_allclose(data.reshape(entry["shape"]), matrix, atol=1e-5)


async def test_large_matrices_are_streamed_whole(ask: Ask) -> None:
    texts = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(200)]

    status, answer = await ask("/pooling", model="colbert", input=texts, dimensions=DIM)

    assert status == 200
    assert [entry["index"] for entry in answer["data"]] == list(range(200))
    assert sum(np.array(entry["data"]).size for entry in answer["data"]) > 2**15


async def test_matrices_of_a_narrower_width(ask: Ask) -> None:
    _, whole = await ask("/pooling", model="colbert", input=TEXTS)
    _, narrow = await ask("/pooling", model="colbert", input=TEXTS, dimensions=5, task="token_embed")

    for entry, other in zip(narrow["data"], whole["data"], strict=True):
        assert entry["shape"] == [other["shape"][0], 5]
        np.testing.assert_allclose(np.linalg.norm(entry["data"], axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_of_a_model_of_matrices_are_these(ask: Ask, encoding: str) -> None:
    _, pooled = await ask("/pooling", model="colbert", input=TEXTS, encoding_format=encoding)

    status, answer = await ask("/v1/embeddings", model="colbert", input=TEXTS, encoding_format=encoding)

    assert status == 200
    assert answer["usage"] == pooled["usage"]
    for entry, same in zip(answer["data"], pooled["data"], strict=True):
        assert entry == {
            "object": "embedding",
            "index": same["index"],
            "shape": same["shape"],
            "embedding": same["data"],
        }


async def test_one_model_gives_vectors_and_matrices(ask: Ask, here: Loaded) -> None:
    _, vectors = await ask("/pooling", model="bge", input=TEXTS, task="embed")
    _, matrices = await ask("/pooling", model="bge", input=TEXTS)
    _, embeddings = await ask("/v1/embeddings", model="bge", input=TEXTS)

    assert [entry["shape"] for entry in vectors["data"]] == [[here["bge"][0].dimensions]] * len(TEXTS)
    assert [entry["data"] for entry in vectors["data"]] == [entry["embedding"] for entry in embeddings["data"]]
    assert [entry["shape"][1] for entry in matrices["data"]] == [DIM] * len(TEXTS)


def max_sim(query: Array, document: Array) -> float:
    return float((query @ document.T).max(1).sum())


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
async def test_score_by_matrices(path: str, ask: Ask, here: Loaded) -> None:
    queries = run(*here["colbert"], "multivector", TEXTS, input_type="query")
    documents = run(*here["colbert"], "multivector", TEXTS[::-1])

    status, many = await ask(path, model="colbert", text_1=TEXTS, text_2=TEXTS[::-1])
    _, one = await ask(path, model="colbert", queries=TEXTS[0], documents=TEXTS[::-1])

    assert (status, many["object"], [entry["object"] for entry in many["data"]]) == (200, "list", ["score"] * 3)
    assert [entry["index"] for entry in many["data"]] == [0, 1, 2]
    expected = [max_sim(query, document) for query, document in zip(queries, documents, strict=True)]
    np.testing.assert_allclose([entry["score"] for entry in many["data"]], expected, rtol=1e-5)
    expected = [max_sim(queries[0], document) for document in documents]
    np.testing.assert_allclose([entry["score"] for entry in one["data"]], expected, rtol=1e-5)
    tokens = tokens_of(here["colbert"], "multivector", TEXTS[:1], input_type="query")
    tokens += tokens_of(here["colbert"], "multivector", TEXTS)
    assert one["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_score_by_vectors_and_by_the_task_that_is_named(ask: Ask, here: Loaded) -> None:
    vectors = run(*here["bge"], "embed", TEXTS)
    matrices = run(*here["bge"], "multivector", TEXTS)

    _, cosines = await ask("/score", model="bge", text_1=TEXTS[0], text_2=TEXTS)
    _, sums = await ask("/score", model="bge", text_1=TEXTS[0], text_2=TEXTS, task="multivector")

    np.testing.assert_allclose([entry["score"] for entry in cosines["data"]], vectors @ vectors[0], atol=1e-5)
    expected = [max_sim(matrices[0], matrix) for matrix in matrices]
    np.testing.assert_allclose([entry["score"] for entry in sums["data"]], expected, rtol=1e-5)


async def test_cosine_does_not_ask_for_length_one(ask: Ask) -> None:
    _, answer = await ask("/score", model="m", text_1="four", text_2=["sixsix", "a"])

    assert [entry["score"] for entry in answer["data"]] == pytest.approx([1.0, 1.0])


@pytest.fixture
async def reranker(queue_url: str) -> AsyncIterator[Held]:
    worker = Held(queue_url, tasks=["rerank"])
    await worker.join()
    yield worker
    await worker.close()


async def test_score_by_a_reranker(ask: Ask, reranker: Held) -> None:
    asking = asyncio.create_task(ask("/score", model=reranker.model, text_1="q", text_2=["a", "b", "c"]))
    delivery = await reranker.take("online")
    assert delivery.job
    assert (delivery.job.task, delivery.job.items) == ("rerank", [["q", "a"], ["q", "b"], ["q", "c"]])
    scores = np.array([0.5, 0.25, 0.75], np.float32)
    await reranker.consumer.answer([(delivery, Result(delivery.job.id, scores, 12, 0))])

    status, answer = await asking

    assert (status, [entry["score"] for entry in answer["data"]]) == (200, [0.5, 0.25, 0.75])
    assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}


@pytest.mark.parametrize("task", [None, "rerank"])
async def test_a_model_that_still_loads_is_awaited(task: str | None, ask: Ask, reranker: Held) -> None:
    ready, reranker.info = reranker.info, replace(reranker.info, state="loading", tasks=[])
    await beat(reranker.redis, reranker.info)
    await asyncio.sleep(1.1)  # an API's knowledge of the models is a second old at most
    asking = asyncio.create_task(ask("/score", model=reranker.model, text_1="q", text_2="a", task=task))
    await asyncio.sleep(0.1)
    reranker.info = ready
    delivery = await reranker.take("online")
    assert delivery.job
    await reranker.consumer.answer([(delivery, Result(delivery.job.id, np.ones(1, np.float32), 3, 0))])

    status, answer = await asking

    assert (status, delivery.job.task, answer["data"][0]["score"]) == (200, "rerank", 1.0)


async def test_pairs_of_a_reranker_that_cannot_be_read_are_named(ask: Ask, reranker: Held) -> None:
    asking = asyncio.create_task(ask("/score", model=reranker.model, text_1=["q", "r"], text_2=["a", "b"]))
    delivery = await reranker.take("online")
    await reranker.refuse(delivery, InvalidInput("is strange", item=1))

    status, answer = await asking

    assert (status, answer["error"]["param"]) == (422, "text_2[1]")
    assert answer["error"]["message"] == "text_2[1]: is strange"


async def test_a_long_text_for_many_is_refused_by_a_reranker(ask: Ask, reranker: Held) -> None:
    status, answer = await ask("/score", model=reranker.model, text_1="q" * 100_000, text_2=["a"] * 50)

    assert (status, answer["error"]["param"]) == (400, "text_1")
    assert answer["error"]["message"] == "text_1: its 100000 characters for 50 texts are too many"


BAD: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("/sparse", {"model": "bge", "input": []}, "input", "at least 1"),
    ("/sparse", {"model": "bge", "input": "a", "top_k": 0}, "top_k", "greater than or equal"),
    ("/sparse", {"model": "bge", "input": "a", "top_k": 10**6}, "top_k", "top_k must be from 1 to"),
    ("/sparse", {"model": "bge", "input": "a", "prompt": "p"}, "prompt", "there is no option 'prompt'"),
    ("/sparse", {"model": "bge", "input": ["a"] * 2049}, "input", "2049 items"),
    ("/sparse", {"model": "colbert", "input": "a"}, "model", "cannot give sparse vectors, only multivector"),
    ("/pooling", {"model": "colbert", "input": "a", "task": "embed"}, "model", "cannot embed, only multivector"),
    ("/pooling", {"model": "colbert", "input": "a", "task": "classify"}, "task", "'token_embed'"),
    ("/pooling", {"model": "colbert", "input": "a", "dimensions": DIM + 1}, "dimensions", f"from 1 to {DIM}"),
    ("/pooling", {"model": "colbert", "input": "a", "input_type": "passage"}, "input_type", "'query' or 'document'"),
    ("/pooling", {"model": "colbert", "input": "YQ==", "modality": "image"}, "modality", "takes text, not image"),
    ("/score", {"model": "colbert", "text_1": "a"}, "text_2", "required"),
    ("/score", {"model": "colbert", "text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1", "2 texts for 3"),
    ("/score", {"model": "colbert", "text_1": "a", "text_2": ["b"] * 2049}, "text_2", "2049 items"),
    ("/score", {"model": "colbert", "text_1": "a", "text_2": ["b", 3]}, "text_2[1]", "string"),
    ("/score", {"model": "colbert", "text_1": "a", "text_2": "b", "task": "rerank"}, "model", "cannot rerank"),
    ("/score", {"model": "colbert", "text_1": "a", "text_2": "YQ==", "modality": "image"}, "modality", "takes text"),
    ("/score", {"model": "colbert", "text_1": "a", "text_2": "?", "modality": "image"}, "text_2[0]", "base64"),
]


@pytest.mark.parametrize(("path", "body", "param", "words"), BAD)
async def test_400(path: str, body: dict[str, Any], param: str | None, words: str, ask: Ask) -> None:
    status, answer = await ask(path, **body)

    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_input", param), answer
    assert words in answer["error"]["message"]


async def test_a_classifier_cannot_score(ask: Ask, queue_url: str) -> None:
    worker = Held(queue_url, tasks=["classify"])
    await worker.join()

    status, answer = await ask("/score", model=worker.model, text_1="a", text_2="b")
    await worker.close()

    assert (status, answer["error"]["param"]) == (400, "model")
    assert "cannot score, only classify" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/sparse", "/pooling", "/score"])
async def test_an_unknown_model_is_named(path: str, ask: Ask) -> None:
    status, answer = await ask(path, model="absent", input="a", text_1="a", text_2="b")

    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert "no model 'absent' is served here; there is: " in answer["error"]["message"]


async def test_options_of_a_score(ask: Ask) -> None:
    pairs = {"text_1": "hello", "text_2": ["the quick brown fox", "a"]}
    _, whole = await ask("/score", model="colbert", **pairs)
    _, narrow = await ask("/score", model="colbert", dimensions=2, **pairs)
    assert [one["score"] for one in narrow["data"]] != [one["score"] for one in whole["data"]]

    status, answer = await ask("/score", model="colbert", raw_scores=True, **pairs)
    assert (status, answer["error"]["param"]) == (400, "raw_scores")

    status, answer = await ask("/score", model="colbert", truncate=False, text_1="a", text_2=["b", "fox " * 9000])
    assert (status, answer["error"]["param"]) == (422, "text_2[1]")
