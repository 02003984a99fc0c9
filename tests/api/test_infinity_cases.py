"""
What Infinity's own tests and its source say of its HTTP interface, case by case, by number.

Where ours differs, the test states ours, and docs/from_infinity.md says so: a field that is wrong is 400 and not 422, a
model that is not there 404 and not 400, and long texts are cut instead of refused. These are tested elsewhere:

 14, 103  test_openapi.py, test_bad_requests.py
 23, 69-75  test_openai_client.py, test_embedding_options.py, test_media.py
 25-28, 84  tests/workers/families/test_sentence_transformer.py, tests/workers/engines, tests/quality
 29, 30  tests/workers/families/test_colbert.py, test_listing.py
 31-42  test_media.py, media/test_fetch.py, tests/workers/families/test_clap.py
 43-54, 77, 79, 80  test_reranking.py
 55-68  test_media.py, media/test_fetch.py, tests/workers/media/test_images.py
 81, 82, 106  test_embedding_options.py, tests/workers/families/test_clip.py
 105  test_page.py: GET / is a page that leads to /docs
 107  test_overload.py
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.cli.conftest import Serving

Ask = Callable[..., Any]

KEY = "a-key-for-all"
FIRST, SECOND = "dummy-number-1", "dummy-number-2"
LONGEST = 122_880  # characters that Infinity takes


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Two models without a network, by Infinity's options."""
    names = ["--served-model-name", FIRST, "--served-model-name", SECOND]
    models = ["--model-id", "dummy", "--model-id", "dummy", "--engine", "debugengine"]
    serving = Serving(*models, *names, "--api-key", KEY, "--url-prefix", "/inner", "--lengths-via-tokenize")
    yield serving.ready().url
    serving.end()


@pytest.fixture
async def http(server: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server) as session:
        yield session


@pytest.fixture
async def ask(http: aiohttp.ClientSession) -> Ask:
    """Ask with the key, and give status and answer."""

    async def ask(path: str = "/embeddings", method: str = "POST", **body: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {KEY}"}
        json = {"model": FIRST} | body if method == "POST" else None
        async with http.request(method, path, json=json, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    return ask


@pytest.mark.parametrize("path", ["/models", "/inner/models", "/v1/models"])
async def test_1_2_3_17_24_models(path: str, ask: Ask) -> None:
    status, answer = await ask(path, "GET")
    assert status == 200
    assert [one["id"] for one in answer["data"]] == [FIRST, SECOND]
    for one in answer["data"]:
        assert one["stats"].keys() == {"queue_fraction", "queue_absolute", "results_pending", "batch_size"}
        assert (one["backend"], one["owned_by"], one["object"]) == ("dummy", "infinity", "model")
        assert one["capabilities"] == ["embed"]


async def test_4_health(http: aiohttp.ClientSession) -> None:
    async with http.get("/health") as response:
        assert response.status == 200
        assert (await response.json())["unix"] > 1e9


@pytest.mark.parametrize("model", [FIRST, SECOND])
@pytest.mark.parametrize("chars", [LONGEST, LONGEST + 30])
async def test_5_6_7_8_long_texts(chars: int, model: str, ask: Ask) -> None:
    status, answer = await ask(model=model, input="a" * chars)
    assert (status, answer["model"]) == (200, model)  # a longer one is cut, not refused


async def test_9_10_floats_and_base64(ask: Ask) -> None:
    _, floats = await ask(input="Hello World", encoding_format="float")
    _, encoded = await ask(input="Hello World", encoding_format="base64")
    decoded = np.frombuffer(base64.b64decode(encoded["data"][0]["embedding"]), "<f4")
    assert decoded.tolist() == floats["data"][0]["embedding"] == [11.0] * 13
    assert floats["id"].startswith("infinity-")
    assert floats["created"] > 1e9


@pytest.mark.parametrize("texts", [["one"], ["one", "two words"]])
async def test_11_12_18_texts_in_their_order(texts: list[str], ask: Ask) -> None:
    status, answer = await ask(input=texts)
    assert status == 200
    assert [one["embedding"][0] for one in answer["data"]] == [len(text) for text in texts]
    assert [one["index"] for one in answer["data"]] == list(range(len(texts)))


async def test_13_many_requests_at_once(ask: Ask) -> None:
    answers = await asyncio.gather(*(ask(input=["x" * number] * 8) for number in range(1, 200)))
    assert [answer["data"][7]["embedding"][0] for _, answer in answers] == list(range(1, 200))


@pytest.mark.parametrize("texts", [["one"], ["one", "two"]])
async def test_15_16_dimensions(texts: list[str], ask: Ask) -> None:
    _, answer = await ask(input=texts, dimensions=10)
    assert [len(one["embedding"]) for one in answer["data"]] == [10] * len(texts)


async def test_19_53_a_task_that_the_model_has_not(ask: Ask) -> None:
    assert (await ask("/rerank", query="a", documents=["b"]))[0] == 400
    assert (await ask("/classify", input=["b"]))[0] == 400


@pytest.mark.parametrize("key", ["", "another"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/models"), ("POST", "/embeddings"), ("POST", "/rerank")])
async def test_20_21_22_102_without_the_key(method: str, path: str, key: str, http: aiohttp.ClientSession) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with http.request(method, path, data=b"{no json", headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_76_78_usage_is_of_tokens(ask: Ask) -> None:
    _, answer = await ask(input=["Hi", "how", "school", "Pizza Hi"])
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}  # four characters each, here


async def test_83_an_error_s_body(ask: Ask) -> None:
    _, answer = await ask(input=[])
    assert answer["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({}, 400, id="85 no input"),
        pytest.param({"input": []}, 400, id="86 no items"),
        pytest.param({"input": ""}, 200, id="87 an empty text"),
        pytest.param({"input": ["", ""]}, 200, id="88 empty texts"),
        pytest.param({"input": "a" * LONGEST + " " * 10}, 200, id="89 white space at the end"),
        pytest.param({"input": ["a"] * 2048}, 200, id="90 as many items as may be"),
        pytest.param({"input": ["a"] * 2049}, 400, id="90 one more"),
        pytest.param({"input": ["https://example.org/a.png"] * 33, "modality": "image"}, 400, id="91 no images here"),
        pytest.param({"input": [1, 2]}, 422, id="92 token ids, which this model cannot read"),
        pytest.param({"input": "a", "modality": "video"}, 400, id="93 an unknown modality"),
        pytest.param({"input": "a", "modality": None}, 400, id="93 no modality"),
        pytest.param({"input": "a", "modality": "text"}, 200, id="93 text"),
        pytest.param({"input": "a", "encoding_format": "hex"}, 400, id="94 an unknown encoding"),
        pytest.param({"input": "a", "encoding_format": None}, 200, id="94 no encoding: floats"),
        pytest.param({"input": "a", "dimensions": None}, 200, id="95 no dimensions: all"),
        pytest.param({"input": "a", "dimensions": "10"}, 400, id="95 a text for a number"),
        pytest.param({"input": "a", "dimensions": 1.5}, 400, id="95 no whole number"),
        pytest.param({"input": "a", "dimensions": -1}, 400, id="96 under 0"),
        pytest.param({"input": "a", "dimensions": 14}, 400, id="96 more than there are"),
        pytest.param({"input": "a", "dimensions": 0}, 200, id="97 0: all"),
        pytest.param({"input": "a", "model": "absent"}, 404, id="98 an unknown model"),
        pytest.param({"input": "a", "model": "default/not-specified"}, 400, id="98 which of two models is not said"),
        pytest.param({"input": "a", "user": "someone", "unknown": [1]}, 200, id="fields that are passed over"),
    ],
)
async def test_85_to_98_fields_of_embeddings(body: dict[str, Any], status: int, ask: Ask) -> None:
    told, answer = await ask(**body)
    assert told == status, answer
    if status == 200:
        assert {len(one["embedding"]) for one in answer["data"]} == {13}


async def test_89_white_space_is_kept(ask: Ask) -> None:
    _, answer = await ask(input=" a ")
    assert answer["data"][0]["embedding"][0] == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/classify", {"input": "alone"}, id="99 a bare text"),
        pytest.param("/rerank", {"query": "a", "documents": []}, id="100 no documents"),
        pytest.param("/rerank", {"documents": ["a"]}, id="100 no query"),
        pytest.param("/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, id="52 top_n of 0"),
        pytest.param("/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, id="51 top_n of -1"),
        pytest.param("/embeddings_image", {"input": []}, id="66 no images"),
        pytest.param("/embeddings", {"input": [], "modality": "audio"}, id="41 no sounds"),
        pytest.param("/embeddings_image", {"input": "htt://example.org/a.png"}, id="64 no URL"),
    ],
)
async def test_41_to_100_fields_of_others(path: str, body: dict[str, Any], ask: Ask) -> None:
    assert (await ask(path, **body))[0] == 400


async def test_100_documents_that_are_objects_are_taken(ask: Ask) -> None:
    status, answer = await ask("/rerank", query="a", documents=[{"text": "b"}])
    assert (status, answer["error"]["param"]) == (400, "model")  # and not documents


async def test_102_no_json(http: aiohttp.ClientSession) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    async with http.post("/embeddings", data=b"{no json", headers=headers) as response:
        assert response.status == 400


async def test_103_paths_and_methods(ask: Ask) -> None:
    assert (await ask("/embeddings", "GET"))[0] == 405
    assert (await ask("/nowhere", "GET"))[0] == 404


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/docs", "/openapi.json", "/inner/docs", "/inner/openapi.json"]
)
async def test_104_what_needs_no_key(path: str, http: aiohttp.ClientSession) -> None:
    async with http.get(path) as response:
        assert response.status == 200
