"""What a request for embeddings may say of its texts and of its numbers, from a body to the answer."""

import asyncio
import io
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import transformers as real_transformers
from sentence_transformers.util import quantize_embeddings

from infinity_pool.api.clients.client import Client
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.content import RANGES
from infinity_pool.workers.interface import Engine, Family
from tests.api.conftest import PATIENCE, Api, Process, _until_ready
from tests.prepared import prepared
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import embed, load_here

transformers: Any = real_transformers
MODEL = "options"
LONG = "the quick brown fox jumps over the lazy dog " * 60 + "a cat sits on the mat"
TEXTS = ["hello world", LONG]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_network("bert", tmp_path_factory.mktemp("model"), model_max_length=24)
    np.save(folder / RANGES, np.stack([np.full(WIDTH, -0.3), np.full(WIDTH, 0.3)]).astype(np.float32))
    return save_modules(folder, pooling("mean"), ("Normalize", {}), prompts={"query": "fox: "})


@pytest.fixture(scope="module")
def here(folder: Path) -> tuple[Family, Engine]:
    """The same model in this process, to compare with."""
    return load_here(folder)


@pytest.fixture(scope="module")
def served(folder: Path, here: tuple[Family, Engine], idle_api: Api, queue_url: str) -> Iterator[Api]:
    options = ["--served-model-name", MODEL, "--redis-url", queue_url, "--batch-tokens", "512"]
    worker = Process("worker", *prepared(folder), *options, "--embedding-dtype", "float16")
    asyncio.run(_until_ready(idle_api.url, MODEL, 4 * PATIENCE))  # a first start imports, describes and measures
    yield idle_api
    worker.stop()


class Ask:
    """Posts bodies."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.headers: Any = {}

    async def __call__(self, path: str = "/embeddings", **body: Any) -> Any:
        data = io.BytesIO(json.dumps({"model": MODEL, **body}).encode())
        async with self._session.post(path, data=data, headers={"Content-Type": "application/json"}) as response:
            self.headers = response.headers
            return await response.json()

    async def vectors(self, **body: Any) -> Array:
        answer = await self(**{"embedding_dtype": "float32", **body})
        return np.array([entry["embedding"] for entry in answer["data"]])


@pytest.fixture
async def ask(served: Api) -> AsyncIterator[Ask]:
    async with aiohttp.ClientSession(served.url) as session:
        yield Ask(session)


def ids_of(folder: Path, text: str) -> list[int]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
    return ids


@pytest.mark.parametrize(
    "options",
    [
        {"truncation_side": "left"},
        {"truncate_prompt_tokens": 5},
        {"truncate_prompt_tokens": -1, "truncation_side": "right"},
        {"truncate_prompt_tokens": 6, "truncation_side": "left", "pooling": "cls"},
        {"pooling": "max", "normalize": False},
        {"pooling": "lasttoken", "dimensions": 8},
    ],
    ids=str,
)
async def test_options_of_a_text(ask: Ask, here: tuple[Family, Engine], options: dict[str, Any]) -> None:
    vectors = await ask.vectors(input=TEXTS, **options)

    np.testing.assert_allclose(vectors, embed(*here, TEXTS, **options), atol=1e-5)
    rows = here[0].prepare(here[0].head("embed", options), TEXTS, options)
    assert ask.headers["X-Infinity-Truncated"] == str(rows.truncated.sum())


async def test_the_end_of_a_text_that_no_worker_reads_whole(ask: Ask, here: tuple[Family, Engine]) -> None:
    text = "fox " * 20_000 + "a cat sits on the mat"

    vectors = await ask.vectors(input=[text], truncation_side="left")

    np.testing.assert_allclose(vectors, embed(*here, [text], truncation_side="left"), atol=1e-5)
    assert np.abs(vectors - await ask.vectors(input=[text])).max() > 1e-3


@pytest.mark.parametrize("several", [False, True])
async def test_token_ids(ask: Ask, here: tuple[Family, Engine], folder: Path, several: bool) -> None:
    ids = ids_of(folder, TEXTS[0])
    answer = await ask(input=[ids, [*ids, *ids]] if several else ids, embedding_dtype="float32")

    items: list[Any] = [ids, [*ids, *ids]] if several else [ids]
    expected = embed(*here, items)
    np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], expected, atol=1e-5)
    assert answer["usage"]["total_tokens"] == len(ids) * (3 if several else 1)
    np.testing.assert_allclose(expected[:1], embed(*here, TEXTS[:1]), atol=1e-5)


async def test_a_body_of_many_token_ids(ask: Ask, here: tuple[Family, Engine]) -> None:
    rows = np.random.default_rng(0).integers(10, 99, (500, 1000)).tolist()  # of over a megabyte

    answer = await ask(input=rows, embedding_dtype="float32")

    assert answer["usage"]["total_tokens"] == 500 * 24
    np.testing.assert_allclose(answer["data"][7]["embedding"], embed(*here, rows[7:8])[0], atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_number_formats(ask: Ask, here: tuple[Family, Engine], dtype: Any, encoding: str) -> None:
    answer = await ask(input=TEXTS, embedding_dtype=dtype, dimensions=24, encoding_format=encoding)

    ranges = np.stack([np.full(24, -0.3), np.full(24, 0.3)]).astype(np.float32)
    expected: Any = quantize_embeddings(embed(*here, TEXTS, dimensions=24), dtype, ranges=ranges)
    values = [entry["embedding"] for entry in answer["data"]]
    if encoding == "base64":
        values = [np.frombuffer(b64decode(value), ask.headers["X-Infinity-Dtype"]) for value in values]
    assert ask.headers["X-Infinity-Dtype"] == expected.dtype.name
    assert np.abs(np.array(values, np.int32) - expected).max() <= (1 if dtype in ("int8", "uint8") else 0)


async def test_the_workers_own_format(ask: Ask, here: tuple[Family, Engine], served: Api, queue_url: str) -> None:
    expected = embed(*here, TEXTS)

    answer = await ask(input=TEXTS)
    for target in (served.url, queue_url):
        async with Client(target) as client:
            plain = await client.embed(MODEL, TEXTS)
            bits = await client.embed(MODEL, TEXTS, embedding_dtype="ubinary")
        assert (plain.dtype.name, bits.dtype.name, bits.shape) == ("float16", "uint8", (2, WIDTH // 8))
        np.testing.assert_allclose(plain, expected, atol=1e-3)

    assert len(answer["data"][0]["embedding"]) == WIDTH
    scores = await ask("/score", text_1=TEXTS[0], text_2=TEXTS)
    assert scores["data"][0]["score"] == pytest.approx(1, abs=1e-6)  # of float32, whatever the worker's own is


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"truncation_side": "up"}, "truncation_side", "'left' or 'right'"),
        ({"truncate_prompt_tokens": 2}, "truncate_prompt_tokens", "from 3"),
        ({"truncate_prompt_tokens": 25}, "truncate_prompt_tokens", "to the model's 24"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-1"),
        ({"pooling": "median"}, "pooling", "median"),
        ({"embedding_dtype": "int4"}, "embedding_dtype", "ubinary"),
        ({"embedding_dtype": "int8", "pooling": "cls"}, "pooling", "int8"),
        ({"input": [[5], [100_000]]}, "input[1]", "100000"),
        ({"input": [[5], [-1]]}, "input[1]", "-1"),
        ({"input": [[5], [True]]}, "input[1]", "bool"),
        ({"input": [[5], []]}, "input[1]", "no tokens"),
        ({"input": [[5], [5] * 25], "truncate": False}, "input[1]", "over"),
        ({"input": LONG, "truncate": False, "truncate_prompt_tokens": 9}, "input[0]", "over the 9 tokens"),
        ({"input": [[5]], "input_type": "query"}, "input_type", "as they are"),
        ({"input": [5], "modality": "image"}, "modality", "image"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_named(ask: Ask, body: dict[str, Any], param: str, words: str) -> None:
    error = (await ask(**{"input": "a", **body}))["error"]

    assert (error["param"], error["type"]) == (param, "invalid_request_error"), error
    assert words in error["message"]


async def test_a_side_with_two_names(ask: Ask) -> None:
    error = (await ask("/score", text_1="a", queries="b", text_2="c"))["error"]

    assert (error["param"], error["code"]) == ("queries", "invalid_input")
    assert "text_1 or queries" in error["message"]
