"""/rerank as Cohere's, Jina's, Voyage's and text-embeddings-inference's clients send it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from tests.api import conformity
from tests.api.conftest import PATIENCE, Api, Process, _until_ready
from tests.prepared import prepared
from tests.tiny_models import save_scorer

Ask = Callable[..., Any]

QUERY = "a query"
TEXTS = ["one", "two words", "and three words"]
OBJECTS = [{"text": text, "title": f"title of {text}", "pages": 3} for text in TEXTS]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, idle_api: Api, queue_url: str) -> Iterator[Api]:
    folder = save_scorer("bert", tmp_path_factory.mktemp("scorer"))
    options = ["--served-model-name", "ranker", "--batch-tokens", "512", "--redis-url", queue_url]
    process = Process("worker", *prepared(folder), *options)
    asyncio.run(_until_ready(idle_api.url, "ranker", 4 * PATIENCE))
    yield idle_api
    process.stop()


@pytest.fixture
async def ask(served: Api) -> AsyncIterator[Ask]:
    """Post a body, and give status and answer."""
    async with aiohttp.ClientSession(served.url) as session:

        async def post(path: str, **body: Any) -> tuple[int, Any]:
            body = {"model": "ranker", "query": QUERY} | body
            async with session.post(path, json=body) as response:
                answer = await response.json()
            conformity.check(path, response.status, answer)
            return response.status, answer

        yield post


async def scores(ask: Ask, documents: list[str] = TEXTS) -> list[tuple[int, float]]:
    status, answer = await ask("/rerank", documents=documents)
    assert status == 200
    return [(one["index"], one["relevance_score"]) for one in answer["results"]]


@pytest.mark.parametrize(("path", "version"), [("/rerank", "1"), ("/v1/rerank", "1"), ("/v2/rerank", "2")])
async def test_what_all_answers_have(path: str, version: str, ask: Ask) -> None:
    status, answer = await ask(path, documents=TEXTS * 50, top_k=2)

    assert (status, len(answer["results"])) == (200, 2)
    assert answer["meta"]["api_version"] == {"version": version}
    assert answer["meta"]["billed_units"] == {"search_units": 2}
    assert answer["usage"]["total_tokens"] > 0
    assert answer["id"]
    assert [one["document"] for one in answer["results"]] == [None, None]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_documents_come_back_as_objects(path: str, ask: Ask) -> None:
    expected = await scores(ask)

    _, of_texts = await ask(path, documents=TEXTS, return_documents=True)
    _, of_objects = await ask(path, documents=OBJECTS, return_documents=True)

    for answer in (of_texts, of_objects):
        assert [(one["index"], one["relevance_score"]) for one in answer["results"]] == expected
    assert [one["document"] for one in of_texts["results"]] == [{"text": TEXTS[index]} for index, _ in expected]
    assert [one["document"] for one in of_objects["results"]] == [OBJECTS[index] for index, _ in expected]


async def test_infinity_s_documents_come_back_as_texts(ask: Ask) -> None:
    expected = await scores(ask)

    _, answer = await ask("/rerank", documents=OBJECTS, return_documents=True)

    assert [(one["document"], one["relevance_score"]) for one in answer["results"]] == [
        (TEXTS[index], score) for index, score in expected
    ]


async def test_rank_fields_are_read_in_their_order(ask: Ask) -> None:
    expected = await scores(ask, [f"title of {text}\n{text}" for text in TEXTS])

    _, answer = await ask("/v1/rerank", documents=OBJECTS, rank_fields=["title", "text"])

    assert [(one["index"], one["relevance_score"]) for one in answer["results"]] == expected
    status, answer = await ask("/v1/rerank", documents=OBJECTS, rank_fields=["title", "pages"])
    assert (status, answer["param"]) == (400, "documents[0]")
    assert "'pages' is no text" in answer["message"]


async def test_tei_s_clients_are_told_the_times(served: Api) -> None:
    body = {"model": "ranker", "query": QUERY, "texts": TEXTS}
    async with aiohttp.ClientSession(served.url) as session, session.post("/rerank", json=body) as response:
        assert int(response.headers["x-total-time"]) >= 0
        assert int(response.headers["x-compute-characters"]) == 3 * len(QUERY) + sum(map(len, TEXTS))


async def test_texts_are_answered_as_by_tei(ask: Ask) -> None:
    expected = await scores(ask)

    status, bare = await ask("/rerank", texts=TEXTS)
    _, told = await ask("/rerank", texts=TEXTS, return_text=True, truncate=True, truncation_direction="Left")

    assert status == 200
    assert bare == [{"index": index, "score": score} for index, score in expected]
    assert told == [{"index": index, "score": score, "text": TEXTS[index]} for index, score in expected]


@pytest.mark.parametrize(
    ("changed", "param", "status"),
    [
        ({"texts": []}, "texts", 400),
        ({"texts": ["a", 1]}, "texts[1]", 400),
        ({"texts": ["a"], "documents": ["b"]}, "documents", 400),
        ({"texts": ["a", "word " * 600], "truncate": False}, "texts[1]", 422),
        ({"texts": ["a"], "model": "absent"}, "model", 404),
    ],
)
async def test_tei_s_clients_are_told_in_its_own_words(
    changed: dict[str, Any], param: str, status: int, ask: Ask
) -> None:
    told, answer = await ask("/rerank", **changed)

    assert (told, answer["param"]) == (status, param)
    assert answer["error_type"] in ("Validation", "Tokenizer")
    assert param.partition("[")[0] in answer["error"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_cohere_s_clients_are_told_in_its_own_words(path: str, ask: Ask) -> None:
    status, answer = await ask(path, documents=[])

    assert (status, answer["param"]) == (400, "documents")
    assert "documents" in answer["message"]


async def test_no_document_is_cut_where_voyage_s_clients_say_so(ask: Ask) -> None:
    documents = ["a", "word " * 600]

    assert (await ask("/rerank", documents=documents, truncation=True))[0] == 200
    status, answer = await ask("/rerank", documents=documents, truncation=False)

    assert (status, answer["error"]["param"]) == (422, "documents[1]")


async def test_a_prefix_that_is_a_version_has_infinity_s_answer(start_api: Callable[..., Api], served: Api) -> None:
    api = start_api("--url-prefix", "/v1")
    async with aiohttp.ClientSession(api.url) as session:
        body = {"model": "ranker", "query": QUERY, "documents": TEXTS, "return_documents": True}
        async with session.post("/v1/rerank", json=body) as response:
            answer = await response.json()
    assert {one["document"] for one in answer["results"]} == set(TEXTS)
