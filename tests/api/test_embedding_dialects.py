"""Embeddings as Cohere's and Jina's clients ask for them, of real models: one with prompts, and CLIP."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.content import RANGES
from tests.api import conformity
from tests.api.conftest import PATIENCE, Api, Process, _until_ready
from tests.prepared import prepared
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.tiny_towers import png, save_clip

Ask = Callable[..., Any]

TEXTS = ["the quick brown fox", "jumps over the lazy dog"]
PROMPTS = {"query": "fox: ", "document": "dog: ", "classification": "cat: "}
IMAGE = f"data:image/png;base64,{base64.b64encode(png(40, 40)).decode()}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, idle_api: Api, queue_url: str) -> Iterator[Api]:
    folder = save_network("bert", tmp_path_factory.mktemp("prompted"))
    save_modules(folder, pooling("mean"), ("Normalize", {}), prompts=PROMPTS)
    np.save(folder / RANGES, np.array([[-0.5] * WIDTH, [0.5] * WIDTH], np.float32))
    clip = save_clip(tmp_path_factory.mktemp("clip"))
    workers = [_worker("prompted", folder, queue_url), _worker("clip", clip, queue_url)]
    for name in ("prompted", "clip"):
        asyncio.run(_until_ready(idle_api.url, name, 4 * PATIENCE))
    yield idle_api
    for process in workers:
        process.stop()


def _worker(name: str, folder: Path, queue_url: str) -> Process:
    options = ["--served-model-name", name, "--batch-tokens", "512", "--redis-url", queue_url]
    return Process("worker", *prepared(folder), *options)


@pytest.fixture
async def ask(served: Api) -> AsyncIterator[Ask]:
    """Post a body, and give status and answer."""
    async with aiohttp.ClientSession(served.url) as session:

        async def post(path: str, **body: Any) -> tuple[int, Any]:
            async with session.post(path, json={"model": "prompted"} | body) as response:
                answer = await response.json()
            conformity.check(path, response.status, answer)
            return response.status, answer

        yield post


async def plain(ask: Ask, items: list[str] = TEXTS, **options: Any) -> Array:
    """Give what the server gives to who asks for it by our own names."""
    status, answer = await ask("/v1/embeddings", input=items, **options)
    assert status == 200, answer
    return np.array([one["embedding"] for one in answer["data"]])


async def test_cohere_s_answer(ask: Ask) -> None:
    status, answer = await ask("/v2/embed", texts=TEXTS)

    assert status == 200
    assert answer["embeddings"].keys() == {"float"}
    np.testing.assert_array_equal(answer["embeddings"]["float"], await plain(ask))
    assert answer["texts"] == TEXTS
    assert answer["meta"]["api_version"] == {"version": "2"}
    assert answer["meta"]["billed_units"]["input_tokens"] > 4
    assert answer["id"]


async def test_cohere_s_first_answer(ask: Ask) -> None:
    _, floats = await ask("/v1/embed", texts=TEXTS)
    _, by_type = await ask("/v1/embed", texts=TEXTS, embedding_types=["float"])

    assert (floats["response_type"], by_type["response_type"]) == ("embeddings_floats", "embeddings_by_type")
    np.testing.assert_array_equal(floats["embeddings"], await plain(ask))
    assert by_type["embeddings"]["float"] == floats["embeddings"]
    assert floats["meta"]["api_version"] == {"version": "1"}


async def test_several_number_formats_at_once(ask: Ask) -> None:
    names = ["int8", "float", "uint8", "binary", "ubinary", "base64"]

    status, answer = await ask("/v2/embed", texts=TEXTS, embedding_types=names, output_dimension=16)

    assert status == 200
    found = answer["embeddings"]
    assert list(found) == names
    expected = await plain(ask, dimensions=16)
    for name in ("int8", "uint8", "binary", "ubinary"):
        np.testing.assert_array_equal(found[name], await plain(ask, dimensions=16, embedding_dtype=name))
    np.testing.assert_array_equal(found["float"], expected)
    decoded = np.array([np.frombuffer(base64.b64decode(row), "<f4") for row in found["base64"]])
    np.testing.assert_array_equal(decoded, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("purpose", "option"),
    [
        ("search_query", {"input_type": "query"}),
        ("search_document", {"input_type": "document"}),
        ("classification", {"input_type": "classification"}),
        ("clustering", {}),  # the model has no such prompt
    ],
)
async def test_what_texts_are_for(purpose: str, option: dict[str, Any], ask: Ask) -> None:
    _, of_cohere = await ask("/v2/embed", texts=TEXTS, input_type=purpose)
    np.testing.assert_array_equal(of_cohere["embeddings"]["float"], await plain(ask, **option))


@pytest.mark.parametrize(
    ("task", "option"),
    [
        ("retrieval.query", {"input_type": "query"}),
        ("retrieval.passage", {"input_type": "document"}),
        ("code.query", {"input_type": "query"}),
        ("nl2code.passage", {"input_type": "document"}),
        ("classification", {"input_type": "classification"}),
        ("text-matching", {}),
    ],
)
async def test_jina_s_tasks(task: str, option: dict[str, Any], ask: Ask) -> None:
    np.testing.assert_array_equal(await plain(ask, task=task), await plain(ask, **option))


async def test_a_model_without_prompts_passes_over_what_texts_are_for(ask: Ask) -> None:
    expected = await plain(ask, model="clip")

    np.testing.assert_array_equal(await plain(ask, model="clip", task="retrieval.query"), expected)
    _, answer = await ask("/v2/embed", model="clip", texts=TEXTS, input_type="search_query", truncate="END")
    np.testing.assert_array_equal(answer["embeddings"]["float"], expected)


async def test_where_cohere_s_texts_are_cut(ask: Ask) -> None:
    text = ["fox " * 20 + "dog " * 20]

    _, start = await ask("/v2/embed", texts=text, truncate="START", max_tokens=6)
    _, end = await ask("/v2/embed", texts=text, truncate="END", max_tokens=6)
    status, none = await ask("/v2/embed", texts=text, truncate="NONE", max_tokens=6)

    left = await plain(ask, text, truncate_prompt_tokens=6, truncation_side="left")
    np.testing.assert_array_equal(start["embeddings"]["float"], left)
    np.testing.assert_array_equal(end["embeddings"]["float"], await plain(ask, text, truncate_prompt_tokens=6))
    assert (status, none["param"]) == (422, "texts[0]")
    assert (await ask("/v2/embed", texts=text, max_tokens=1_000_000))[0] == 200


async def test_images_and_mixed_inputs(ask: Ask) -> None:
    image = await plain(ask, [IMAGE], model="clip", modality="image")
    text = await plain(ask, ["a red cat"], model="clip")
    inputs: list[dict[str, Any]] = [
        {"content": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
        {"content": [{"type": "text", "text": "a red cat"}]},
    ]

    _, images = await ask("/v2/embed", model="clip", images=[IMAGE], input_type="image", embedding_types=["float"])
    _, mixed = await ask("/v2/embed", model="clip", inputs=[*inputs, inputs[0]])
    _, of_jina = await ask("/v1/embeddings", model="clip", input=[{"image": IMAGE}, {"text": "a red cat"}, "a red cat"])

    np.testing.assert_array_equal(images["embeddings"]["float"], image)
    assert images["meta"]["billed_units"]["images"] == 1
    np.testing.assert_allclose(mixed["embeddings"]["float"], np.vstack([image, text, image]), atol=1e-6)
    assert mixed["texts"] == ["a red cat"]
    found = [one["embedding"] for one in of_jina["data"]]
    np.testing.assert_allclose(found, np.vstack([image, text, text]), atol=1e-6)


async def test_jina_s_number_formats(ask: Ask) -> None:
    for name in ("binary", "ubinary"):
        expected = await plain(ask, embedding_dtype=name)
        np.testing.assert_array_equal(await plain(ask, embedding_type=name), expected)
        np.testing.assert_array_equal(await plain(ask, embedding_type=[name]), expected)
    _, answer = await ask("/v1/embeddings", input=TEXTS, embedding_type="base64")
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in answer["data"]]
    np.testing.assert_array_equal(decoded, (await plain(ask)).astype(np.float32))
    assert np.linalg.norm((await plain(ask, normalized=False))[0]) != pytest.approx(1)
    np.testing.assert_array_equal(await plain(ask, output_dimension=8), await plain(ask, dimensions=8))


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/embeddings", {"input": TEXTS, "late_chunking": True}, 400, "late_chunking"),
        ("/v1/embeddings", {"input": TEXTS, "return_multivector": True}, 400, "model"),
        ("/v1/embeddings", {"input": TEXTS, "embedding_type": ["float", "binary"]}, 400, "embedding_type"),
        ("/v1/embeddings", {"input": TEXTS, "encoding_type": "hex"}, 400, "encoding_type"),
        ("/v1/embeddings", {"input": [{"text": "a"}, {"pdf": "b"}]}, 400, "input[1]"),
        ("/v1/embeddings", {"input": [{"text": "a"}, {"image": IMAGE}]}, 400, "modality"),
        ("/v1/embeddings", {"model": "clip", "input": ["a", {"image": "data:,x"}]}, 422, "input[1]"),
        ("/v2/embed", {}, 400, "texts"),
        ("/v2/embed", {"texts": []}, 400, "texts"),
        ("/v2/embed", {"texts": ["a"], "images": [IMAGE]}, 400, "images"),
        ("/v2/embed", {"texts": ["a"], "input_type": "poetry"}, 400, "input_type"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["float", "hex"]}, 400, "embedding_types[1]"),
        ("/v2/embed", {"texts": ["a"], "output_dimension": 10_000}, 400, "output_dimension"),
        ("/v2/embed", {"model": "clip", "texts": ["a"], "embedding_types": ["int8"]}, 400, "embedding_types"),
        ("/v2/embed", {"model": "absent", "texts": ["a"]}, 404, "model"),
        ("/v2/embed", {"inputs": [{"content": [{"type": "text", "text": "a"}] * 2}]}, 400, "inputs[0]"),
        ("/v2/embed", {"inputs": [{"content": [{"type": "text"}]}]}, 400, "inputs[0]"),
        ("/v1/embed", {"images": [IMAGE]}, 400, "images"),
    ],
)
async def test_what_is_refused(path: str, body: dict[str, Any], status: int, param: str, ask: Ask) -> None:
    told, answer = await ask(path, **body)

    error = answer["error"] if path == "/v1/embeddings" else answer
    assert told == status, answer
    assert (error["param"] or "").startswith(param), answer


async def test_a_large_answer_comes_in_pieces(ask: Ask) -> None:
    texts = [f"fox {number}" for number in range(1100)]

    _, answer = await ask("/v2/embed", texts=texts, embedding_types=["float", "ubinary"])

    np.testing.assert_array_equal(answer["embeddings"]["float"], await plain(ask, texts))
    assert len(answer["embeddings"]["ubinary"]) == 1100
