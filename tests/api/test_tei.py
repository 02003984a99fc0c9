"""TEI's endpoints, and vLLM's for tokens, through a real API, a real queue and workers of tiny models."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from sentence_transformers import SentenceTransformer

from infinity_pool.broker.embedded import EmbeddedServer
from tests.api import conformity
from tests.api.conftest import Api, _until_ready
from tests.api.worker_here import WorkerHere
from tests.tiny_models import POSITIONS, WIDTH, pooling, save_modules, save_network, save_scorer, transformers
from tests.workers.conftest import run

TEXTS = ["What is the capital of France?", "a cat sits on the mat", "数千年 hello"]
PROMPTS = {"query": "the fox: ", "document": ""}
LABELS = 3

Workers = dict[str, WorkerHere]
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tei")
    vectors = save_modules(
        save_network("bert", root / "vectors", model_max_length=POSITIONS), pooling("mean"), prompts=PROMPTS
    )
    return {"vectors": vectors, "labels": save_scorer("bert", root / "labels", LABELS), "sparse": root / "sparse"}


@pytest.fixture(scope="module")
def queue() -> Iterator[str]:
    with EmbeddedServer.start() as server:
        yield server.url


@pytest.fixture(scope="module")
def workers(folders: dict[str, Path], queue: str) -> Iterator[Workers]:
    from tests.workers.families.test_splade import save_masked_lm

    save_masked_lm("bert", folders["sparse"])
    with ExitStack() as stack:
        kinds = {"vectors": "", "labels": "", "sparse": "splade"}
        made = {name: WorkerHere(queue, name, folders[name], kind) for name, kind in kinds.items()}
        yield {name: stack.enter_context(worker.running()) for name, worker in made.items()}


@pytest.fixture(scope="module")
def served(workers: Workers, queue: str, start_api: Callable[..., Api]) -> Api:
    api = start_api("--max-body", "800000", redis_url=queue)
    for name in workers:
        asyncio.run(_until_ready(api.url, name))
    return api


@pytest.fixture
async def session(served: Api) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(served.url) as session:
        yield session


@pytest.fixture
def ask(session: aiohttp.ClientSession) -> Ask:
    """Post a body, and give status, answer and headers."""

    async def post(path: str, **body: Any) -> tuple[int, Any, Any]:
        async with session.post(path, json=body) as response:
            answer = await response.json()
        conformity.check(path, response.status, answer)
        return response.status, answer, response.headers

    return post


@pytest.fixture(scope="module")
def reference(folders: dict[str, Path]) -> SentenceTransformer:
    return SentenceTransformer(str(folders["vectors"]), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def tokenizer(folders: dict[str, Path]) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folders["vectors"])


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


async def test_embed(ask: Ask, reference: SentenceTransformer) -> None:
    status, normal, headers = await ask("/embed", inputs=TEXTS)
    _, raw, _ = await ask("/embed", inputs=TEXTS, normalize=False)
    _, cut, _ = await ask("/embed", inputs=TEXTS[0], dimensions=8, truncate=True)
    _, named, _ = await ask("/embed", inputs=TEXTS, prompt_name="query", truncate=None, truncation_direction="right")

    expected = reference.encode(TEXTS)
    assert status == 200
    np.testing.assert_allclose(normal, unit(expected), atol=1e-5)
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    np.testing.assert_allclose(cut, unit(expected[:1, :8]), atol=1e-5)
    np.testing.assert_allclose(named, unit(reference.encode(TEXTS, prompt_name="query")), atol=1e-5)
    assert headers["x-compute-type"] == "cpu"
    assert headers["x-compute-characters"] == str(sum(map(len, TEXTS)))
    assert int(headers["x-compute-tokens"]) == sum(map(len, reference.tokenizer(TEXTS)["input_ids"]))
    times = [int(headers[f"x-{name}-time"]) for name in ("tokenization", "queue", "inference", "total", "compute")]
    assert all(0 <= time <= times[3] + 1 for time in times)


async def test_embed_of_token_ids_beside_the_text_they_are_of(ask: Ask, tokenizer: Any) -> None:
    _, texts, _ = await ask("/embed", inputs=TEXTS)
    _, ids, headers = await ask("/embed", inputs=tokenizer(TEXTS)["input_ids"])
    _, one, _ = await ask("/embed", inputs=tokenizer(TEXTS[0])["input_ids"])

    np.testing.assert_allclose(ids, texts, atol=1e-5)
    np.testing.assert_allclose(one, texts[:1], atol=1e-5)
    assert headers["x-compute-characters"] == headers["x-compute-tokens"]


async def test_embed_cuts_where_it_is_said(ask: Ask, reference: SentenceTransformer) -> None:
    long = "the quick brown fox " * 100 + "a cat sits on the mat"
    _, right, _ = await ask("/embed", inputs=long)
    _, left, headers = await ask("/embed", inputs=long, truncation_direction="Left")
    status, error, _ = await ask("/embed", inputs=["a", long], truncate=False)

    np.testing.assert_allclose(right, unit(reference.encode([long])), atol=1e-5)
    assert np.abs(np.array(left) - right).max() > 1e-3
    assert headers["X-Infinity-Truncated"] == "1"
    assert (status, error["error_type"], error["param"]) == (422, "Tokenizer", "inputs[1]")


@pytest.mark.parametrize("count", [3, 60])
async def test_embed_all(count: int, ask: Ask, reference: SentenceTransformer) -> None:
    texts = (TEXTS * 20)[:count]
    status, matrices, headers = await ask("/embed_all", inputs=texts, model="vectors")

    expected = reference.encode(texts, output_value="token_embeddings")
    assert status == 200
    for matrix, tokens in zip(matrices, expected, strict=True):
        np.testing.assert_allclose(matrix, tokens.numpy(), atol=1e-5)
    assert int(headers["x-compute-tokens"]) == sum(map(len, matrices))


async def test_vectors_of_tokens_by_other_endpoints(ask: Ask) -> None:
    _, matrices, _ = await ask("/embed_all", inputs=TEXTS)
    _, embeddings, _ = await ask("/embeddings", input=TEXTS, pooling="none")
    _, pooled, _ = await ask("/pooling", input=TEXTS, task="token_embed", model="vectors")
    _, raw, _ = await ask("/pooling", input=TEXTS, task="token_embed", use_activation=False, model="vectors")

    for index, matrix in enumerate(matrices):
        np.testing.assert_allclose(embeddings["data"][index]["embedding"], matrix, atol=1e-5)
        np.testing.assert_allclose(pooled["data"][index]["data"], unit(np.array(matrix)), atol=1e-5)
        np.testing.assert_allclose(raw["data"][index]["data"], matrix, atol=1e-5)
        assert pooled["data"][index]["shape"] == [len(matrix), WIDTH]


async def test_embed_sparse(ask: Ask, workers: Workers) -> None:
    status, answer, _ = await ask("/embed_sparse", inputs=TEXTS * 20)

    expected = run(workers["sparse"].family, workers["sparse"].engine, "sparse", TEXTS * 20)
    assert status == 200
    for entry, (indices, values) in zip(answer, expected, strict=True):
        assert [one["index"] for one in entry] == indices.tolist()
        np.testing.assert_allclose([one["value"] for one in entry], values, atol=1e-5)


async def test_similarity(ask: Ask, reference: SentenceTransformer) -> None:
    sides = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    status, scores, headers = await ask("/similarity", inputs=sides)
    asked = {"prompt_name": "query", "truncate": True, "truncation_direction": "Right"}
    _, prompted, _ = await ask("/similarity", inputs=sides, parameters=asked)

    vectors = unit(reference.encode(TEXTS))
    assert status == 200
    np.testing.assert_allclose(scores, vectors[1:] @ vectors[0], atol=1e-5)
    vectors = unit(reference.encode(TEXTS, prompt_name="query"))
    np.testing.assert_allclose(prompted, vectors[1:] @ vectors[0], atol=1e-5)
    assert headers["x-compute-characters"] == str(sum(map(len, TEXTS)))


async def test_similarity_names_the_side_that_is_wrong(ask: Ask) -> None:
    long = "fox " * 1000
    for source, others, param in (
        (long, ["a"], "inputs.source_sentence"),
        ("a", ["b", long], "inputs.sentences[1]"),
    ):
        sides = {"source_sentence": source, "sentences": others}
        status, error, _ = await ask("/similarity", inputs=sides, parameters={"truncate": False})
        assert (status, error["param"]) == (422, param)


@pytest.mark.parametrize("raw", [False, True])
async def test_predict(raw: bool, ask: Ask, workers: Workers) -> None:
    pair = [TEXTS[0], TEXTS[1]]
    scores = run(workers["labels"].family, workers["labels"].engine, "classify", [TEXTS[0], pair], raw_scores=raw)
    expected = [{f"LABEL_{place}": float(score) for place, score in enumerate(row)} for row in scores]

    status, alone, _ = await ask("/predict", inputs=TEXTS[0], raw_scores=raw)
    _, two, _ = await ask("/predict", inputs=pair, raw_scores=raw)
    _, several, headers = await ask("/predict", inputs=[[TEXTS[0]], pair], raw_scores=raw)

    assert status == 200
    for answer, labels in ((alone, expected[0]), (two, expected[1]), (several[0], expected[0])):
        assert [one["score"] for one in answer] == sorted((one["score"] for one in answer), reverse=True)
        assert {one["label"]: one["score"] for one in answer} == pytest.approx(labels, abs=1e-5)
    assert len(several) == 2
    assert headers["x-compute-characters"] == str(2 * len(TEXTS[0]) + len(TEXTS[1]))


async def test_tokenize(ask: Ask, tokenizer: Any) -> None:
    status, answer, _ = await ask("/tokenize", inputs=TEXTS, model="vectors")
    _, bare, _ = await ask("/tokenize", inputs=TEXTS[0], model="vectors", add_special_tokens=False)
    _, prompted, _ = await ask("/tokenize", inputs=TEXTS[0], model="vectors", prompt_name="query")

    assert status == 200
    expected = tokenizer(TEXTS, return_offsets_mapping=True, return_special_tokens_mask=True)
    for index, text in enumerate(TEXTS):
        for one, number, place, special in zip(
            answer[index],
            expected["input_ids"][index],
            expected["offset_mapping"][index],
            expected["special_tokens_mask"][index],
            strict=True,
        ):
            assert (one["id"], one["special"]) == (number, bool(special))
            assert (one["start"], one["stop"]) == ((None, None) if special else tuple(place))
            assert one["text"] == (tokenizer.convert_ids_to_tokens(number) if special else text[slice(*place)])
    assert bare == [answer[0][1:-1]]
    assert [one["id"] for one in prompted[0]] == tokenizer(PROMPTS["query"] + TEXTS[0])["input_ids"]


async def test_tokens_of_a_long_text_are_all_given(ask: Ask, tokenizer: Any) -> None:
    text = "the quick brown fox " * 2000
    _, [tokens], _ = await ask("/tokenize", inputs=text, model="vectors")

    assert [one["id"] for one in tokens] == tokenizer(text)["input_ids"]
    status, error, _ = await ask("/tokenize", inputs=["a", "fox " * 100_000], model="vectors")
    assert (status, error["param"]) == (422, "inputs[1]")


async def test_decode(ask: Ask, tokenizer: Any) -> None:
    ids = tokenizer(TEXTS)["input_ids"]
    status, several, _ = await ask("/decode", ids=ids, model="vectors")
    _, one, _ = await ask("/decode", ids=ids[0], skip_special_tokens=False, model="vectors")

    assert status == 200
    assert several == [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    assert one == [tokenizer.decode(ids[0])]


async def test_tokens_as_vllm_has_them(ask: Ask, tokenizer: Any) -> None:
    ids = tokenizer(TEXTS[0])["input_ids"]
    status, plain, _ = await ask("/tokenize", prompt=TEXTS[0], model="vectors")
    _, bare, _ = await ask(
        "/tokenize", prompt=TEXTS[0], model="vectors", add_special_tokens=False, return_token_strs=True
    )
    _, text, _ = await ask("/detokenize", tokens=ids, model="vectors")

    assert status == 200
    assert plain == {"count": len(ids), "max_model_len": POSITIONS, "tokens": ids, "token_strs": None}
    assert (bare["tokens"], bare["token_strs"]) == (ids[1:-1], tokenizer.convert_ids_to_tokens(ids[1:-1]))
    assert text == {"prompt": tokenizer.decode(ids)}


async def test_a_models_tasks_do_not_name_these(session: aiohttp.ClientSession) -> None:
    async with session.get("/models/vectors") as response:
        model = await response.json()
    assert model["capabilities"] == ["embed"]


async def test_the_route_that_is_no_name_is_what_the_model_is_made_for(ask: Ask) -> None:
    for path in ("/", "/invocations"):
        for model, named in (("vectors", "/embed"), ("sparse", "/embed_sparse"), ("labels", "/predict")):
            _, expected, _ = await ask(named, inputs=TEXTS[0], model=model)
            assert (await ask(path, inputs=TEXTS[0], model=model))[:2] == (200, expected)


async def test_info(session: aiohttp.ClientSession) -> None:
    told = {}
    for model in ("vectors", "labels", "sparse"):
        async with session.get("/info", params={"model": model}) as response:
            told[model] = await response.json()
        conformity.check("/info", response.status, told[model], "get")
    assert told["vectors"]["model_type"] == {"embedding": {"pooling": None}}
    assert told["sparse"]["model_type"] == {"embedding": {"pooling": "splade"}}
    assert told["labels"]["model_type"]["classifier"]["label2id"] == {
        f"LABEL_{place}": place for place in range(LABELS)
    }
    assert (told["vectors"]["model_id"], told["vectors"]["max_input_length"]) == ("vectors", POSITIONS)
    assert (told["vectors"]["max_client_batch_size"], told["vectors"]["auto_truncate"]) == (2048, True)
    async with session.get("/info") as response:
        error = await response.json()
    conformity.check("/info", response.status, error, "get")
    assert response.status == 404
    assert "vectors" in error["error"]


async def test_what_vllms_users_ask_of_a_server(session: aiohttp.ClientSession) -> None:
    for path, field in (("/version", "version"), ("/load", "server_load"), ("/ping", "status")):
        async with session.get(path) as response:
            answer = await response.json()
        conformity.check(path, response.status, answer, "get")
        assert field in answer


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/embed", {}, 400, "inputs"),
        ("/embed", {"inputs": []}, 400, "inputs"),
        ("/embed", {"inputs": ["a", 7]}, 400, "inputs[1]"),
        ("/embed", {"inputs": [[1], [10**6]]}, 422, "inputs[1]"),
        ("/embed", {"inputs": [[1], []]}, 400, "inputs[1]"),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, 400, "truncation_direction"),
        ("/embed", {"inputs": "a", "prompt_name": "none"}, 400, "prompt_name"),
        ("/embed", {"inputs": "a", "dimensions": 10**5}, 400, "dimensions"),
        ("/embed", {"inputs": "a", "model": "labels"}, 400, "model"),
        ("/embed", {"inputs": "a", "model": "none"}, 404, "model"),
        ("/embed", {"inputs": ["a"] * 2049}, 400, "inputs"),
        ("/embed", {"inputs": "a" * 900_000}, 413, None),
        ("/predict", {"inputs": ["a", "b", "c"]}, 400, "inputs"),
        ("/predict", {"inputs": [["a"], []]}, 400, "inputs"),
        ("/predict", {"inputs": "a", "parameters": {"function_to_apply": "sigmoid"}}, 400, "parameters"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "inputs.sentences"),
        ("/decode", {"ids": ["a"], "model": "vectors"}, 400, "ids"),
        ("/decode", {"ids": [10**6], "model": "vectors"}, 422, "ids[0]"),
        ("/tokenize", {"model": "vectors"}, 400, None),
        ("/tokenize", {"inputs": "a", "prompt": "b", "model": "vectors"}, 400, None),
    ],
)
async def test_what_is_wrong_is_told_as_tei_does(
    path: str, body: Any, status: int, param: str | None, ask: Ask
) -> None:
    found, error, _ = await ask(path, **body)

    assert (found, error["param"]) == (status, param), error
    assert error["error_type"] == ("Tokenizer" if status == 422 else "Validation")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "a", "model": "none"}, "model"),
        ("/detokenize", {"tokens": [10**6], "model": "vectors"}, "tokens[0]"),
        ("/embeddings", {"input": "a", "messages": [{"role": "user", "content": "a"}]}, "messages"),
        ("/embeddings", {"input": "a", "add_special_tokens": False}, "add_special_tokens"),
        ("/embeddings", {"input": "a", "mm_processor_kwargs": {}}, "mm_processor_kwargs"),
        ("/embeddings", {"input": "a", "endianness": "big"}, "endianness"),
        ("/embeddings", {"input": "a", "encoding_format": "bytes"}, "encoding_format"),
        ("/pooling", {"input": "a", "embed_dtype": "fp8_e4m3", "model": "vectors"}, "embed_dtype"),
        ("/classify", {"input": ["a"], "messages": []}, "messages"),
        (
            "/score",
            {"text_1": "a", "text_2": "b", "add_special_tokens": False, "model": "vectors"},
            "add_special_tokens",
        ),
    ],
)
async def test_what_is_wrong_is_told_as_vllm_does(path: str, body: Any, param: str, ask: Ask) -> None:
    status, error, _ = await ask(path, **body)

    assert status in (400, 404, 422)
    assert error["error"]["param"] == param


async def test_vllms_names_of_our_options(ask: Ask) -> None:
    passed_over = {"priority": 3, "request_id": "a", "cache_salt": "b", "add_special_tokens": True, "messages": None}
    _, ours, _ = await ask("/embeddings", input=TEXTS, normalize=True, embedding_dtype="float16")
    _, theirs, _ = await ask("/embeddings", input=TEXTS, use_activation=True, embed_dtype="float16", **passed_over)
    assert theirs["data"] == ours["data"]

    _, ours, _ = await ask("/classify", input=TEXTS[0], raw_scores=True)
    _, theirs, _ = await ask("/classify", input=[TEXTS[0]], activation=False, **passed_over)
    assert theirs["data"] == ours["data"]


async def test_the_clients_of_hugging_face(served: Api, reference: SentenceTransformer, workers: Workers) -> None:
    def client(path: str) -> InferenceClient:
        return InferenceClient(model=served.url + path, timeout=30)

    vectors = unit(reference.encode(TEXTS))
    found = await asyncio.to_thread(client("/embed").feature_extraction, TEXTS[0], normalize=True, truncate=True)
    np.testing.assert_allclose(found, vectors[:1], atol=1e-5)
    found = await asyncio.to_thread(client("").feature_extraction, TEXTS[0])  # as LangChain's class is pointed
    np.testing.assert_allclose(found, vectors[:1], atol=1e-5)
    scores = await asyncio.to_thread(client("/similarity").sentence_similarity, TEXTS[0], TEXTS[1:])
    np.testing.assert_allclose(scores, vectors[1:] @ vectors[0], atol=1e-5)
    best: Any = await asyncio.to_thread(client("/predict").text_classification, TEXTS[0])  # of a flat list it takes one
    scores = run(workers["labels"].family, workers["labels"].engine, "classify", [TEXTS[0]])
    assert best.score == pytest.approx(scores.max(), abs=1e-5)
