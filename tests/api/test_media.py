"""Files in JSON: decoded, or refused with the item's name; and models that take them."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from PIL import Image

from infinity_pool.broker.callers import digest
from infinity_pool.workers.families.clip import Clip
from tests.api.conftest import Api, Process, until
from tests.prepared import prepared
from tests.tiny_towers import encoded, png, save_clap, save_clip, sound, tone
from tests.workers.conftest import load_here, run

_PATIENCE = 120.0  # s, for two workers to start with torch on a busy machine


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def clap_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clap(tmp_path_factory.mktemp("clap"))


@pytest.fixture(scope="module")
def media_api(folder: Path, clap_folder: Path, queue_url: str, start_api: Any, worker: Process) -> Iterator[Api]:
    """A replica with a CLIP model `c`, a CLAP model `s`, and `m`, which takes texts alone."""
    api: Api = start_api("--max-body", "40000000", "--media-allow", "127.0.0.1/32")
    workers: list[Process] = []
    try:
        for name, path in (("c", folder), ("s", clap_folder)):
            options = ["--preprocess-workers", "1" if name == "c" else "0", "--redis-url", queue_url]
            model = prepared(path, engine="onnx" if name == "c" else "torch")  # none else runs it here
            workers.append(Process("worker", *model, *options, "--served-model-name", name))
        asyncio.run(_until_served(api, "c", "s", "m"))
        yield api
    finally:
        for process in workers:
            process.stop()


async def _until_served(api: Api, *models: str) -> None:
    async with aiohttp.ClientSession(api.url) as session:

        async def served() -> bool:
            async with session.get("/models") as response:
                found = (await response.json())["data"]
            return set(models) <= {model["id"] for model in found if model["ready"]}

        await until(served, _PATIENCE)


async def post(api: Api, path: str, key: str = "", /, **body: Any) -> tuple[int, dict[str, Any]]:
    data = BytesIO(json.dumps({"model": "c", **body}).encode())
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(api.url, headers=headers) as session, session.post(path, data=data) as response:
        return response.status, await response.json()


async def test_images(media_api: Api, folder: Path) -> None:
    images = [png(50, 40), png(32, 32, seed=1), png(7, 90, seed=2)]
    family, engine = load_here(folder)
    assert isinstance(family, Clip)
    wanted = run(family, engine, "embed", images, modality="image")
    values = [uri(images[0]), b64encode(images[1]).decode(), uri(images[2], "audio/nonsense")]

    for path, more in [
        ("/v1/embeddings", {"modality": "image"}),
        ("/embeddings_image", {}),
        ("/v1/embeddings_image", {"modality": "text"}),
    ]:
        status, answer = await post(media_api, path, input=values, **more)
        assert status == 200, answer
        vectors = np.array([entry["embedding"] for entry in answer["data"]])
        np.testing.assert_allclose(vectors, wanted, atol=1e-5)
        assert answer["usage"]["prompt_tokens"] == 3 * 16  # patches

    status, answer = await post(media_api, "/embeddings", input=values[0], modality="image", dimensions=5)
    assert (status, len(answer["data"][0]["embedding"])) == (200, 5)


@asynccontextmanager
async def pictures() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a picture; gives the URL, and the paths that were asked for."""
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.Response(body=png(50, 40), status=200 if request.path == "/cat.png" else 404)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    await runner.cleanup()


async def test_nothing_is_fetched_for_a_key_that_is_not_for_it(
    media_api: Api, start_api: Callable[..., Api], tmp_path: Path
) -> None:
    scopes = {"tasks": ["classify"], "lanes": ["bulk"], "models": ["s"]}
    entries = [{"name": name, "hash": digest(name), name: only} for name, only in scopes.items()]
    (tmp_path / "keys.jsonl").write_text("\n".join(map(json.dumps, entries)))
    guarded = start_api("--media-allow", "127.0.0.1/32", "--api-key-file", str(tmp_path / "keys.jsonl"))
    async with pictures() as (here, asked):
        ways: list[tuple[str, dict[str, Any]]] = [
            ("/embeddings", {"input": f"{here}/cat.png", "modality": "image"}),
            ("/embeddings", {"input": ["a", {"image": f"{here}/cat.png"}]}),
            ("/pooling", {"input": f"{here}/cat.png", "modality": "image"}),
            ("/score", {"text_1": "a cat", "text_2": [f"{here}/cat.png"], "modality": "image"}),
            ("/v2/embed", {"images": [f"{here}/cat.png"]}),
        ]
        statuses = [(await post(guarded, path, key, **body))[0] for key in scopes for path, body in ways]
    assert (set(statuses), asked) == ({403}, [])


async def test_urls(media_api: Api) -> None:
    async with pictures() as (here, _):
        found, same = await post(media_api, "/embeddings_image", input=[f"{here}/cat.png", uri(png(50, 40))])
        missing, error = await post(media_api, "/embeddings_image", input=[GOOD, f"{here}/dog.png"])
        unknown, _ = await post(media_api, "/embeddings_image", input=f"{here}/cat.png", model="nobody's")

    assert (found, missing, unknown) == (200, 400, 404)
    assert same["data"][0]["embedding"] == same["data"][1]["embedding"]
    assert error["error"]["message"] == "input[1]: cannot be fetched: its host answers with status 404"


async def test_uploads(media_api: Api) -> None:
    images = [png(50, 40), png(32, 32, seed=1), png(7, 90, seed=2)]
    _, wanted = await post(media_api, "/embeddings_image", input=[*map(uri, images)], dimensions=6)
    for path, modality in (("/v1/embeddings", "image"), ("/embeddings_image", None)):
        form = aiohttp.FormData({"model": "c", "dimensions": "6"} | ({"modality": modality} if modality else {}))
        form.add_field("file", images[0], filename="cat.png")
        form.add_field("input", uri(images[1]))
        form.add_field("input", images[2], filename="cat.txt", content_type="text/plain")
        async with aiohttp.ClientSession(media_api.url) as session, session.post(path, data=form) as response:
            answer = await response.json()
            assert response.status == 200, answer
        assert answer["data"] == wanted["data"]


async def test_texts_of_the_same_model(media_api: Api, folder: Path) -> None:
    wanted = run(*load_here(folder), "embed", ["a cat", "fox"])
    status, answer = await post(media_api, "/embeddings", input=["a cat", "fox"], modality="text")
    assert status == 200
    np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], wanted, atol=1e-5)


async def test_many_images_go_bulk_and_come_in_order(media_api: Api, folder: Path) -> None:
    images = [png(20 + seed, 30, seed=seed) for seed in range(70)]
    status, answer = await post(media_api, "/embeddings", input=[*map(uri, images)], modality="image")
    assert status == 200
    vectors = np.array([entry["embedding"] for entry in answer["data"]])
    np.testing.assert_allclose(vectors, run(*load_here(folder), "embed", images, modality="image"), atol=1e-5)


GOOD = uri(png(9, 9))
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "an address inside": ({"input": [GOOD, "http://127.0.0.2/a.png"]}, "input[1]", "unknown or not public"),
    "no base64": ({"input": [GOOD, GOOD, "data:image/png;base64,???"]}, "input[2]", "no base64"),
    "a file that fits in no job": ({"input": [GOOD, uri(bytes(9_000_000))]}, "input[1]", "send it smaller"),
    "nothing": ({"input": []}, "input", "at least 1"),
    "an object of another kind": ({"input": {"path": GOOD}}, "input[0]", "an object with a text or an image"),
    "a sound for a model of images": (
        {"input": GOOD, "modality": "audio"},
        "modality",
        "takes text and image, not audio",
    ),
    "an image for a model of texts": ({"input": GOOD, "model": "m"}, "modality", "takes text, not image"),
    "an unknown modality": ({"input": GOOD, "modality": "video"}, "modality", "'text', 'image' or 'audio'"),
    "no modality": ({"input": GOOD, "modality": None}, "modality", "'text', 'image' or 'audio'"),
}


UNREADABLE: dict[str, tuple[list[str], str, str]] = {
    "no image": ([GOOD, uri(b"hello")], "input[1]", "no image"),
    "an image that is cut off": ([uri(png(64, 64)[:-500])], "input[0]", "broken image"),
    "the last of many": ([GOOD] * 80 + [uri(b"hello")], "input[80]", "no image"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_422(case: str, media_api: Api) -> None:
    values, param, words = UNREADABLE[case]
    status, answer = await post(media_api, "/embeddings", input=values, modality="image")
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (422, "unprocessable", param), error
    assert words in error["message"]


@pytest.mark.parametrize("case", BAD)
async def test_400(case: str, media_api: Api) -> None:
    body, param, words = BAD[case]
    status, answer = await post(media_api, "/embeddings", **{"modality": "image"} | body)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "invalid_input", param), error
    assert words in error["message"]


async def test_all_in_all_too_large_is_413(media_api: Api) -> None:
    status, answer = await post(media_api, "/embeddings", input=[uri(bytes(7_500_000))] * 5, modality="image")
    assert (status, answer["error"]["code"]) == (413, "request_entity_too_large")


async def test_files_of_megabytes_have_a_job_each(media_api: Api) -> None:
    large = encoded(Image.effect_noise((1500, 1200), 90), "BMP")
    assert len(large) > 2**20
    status, answer = await post(media_api, "/embeddings_image", input=[uri(large), GOOD, uri(large)])
    assert status == 200, answer
    first, other, last = (np.array(entry["embedding"]) for entry in answer["data"])
    np.testing.assert_allclose(first, last, atol=1e-5)
    assert np.abs(first - other).max() > 1e-3


async def test_sounds(media_api: Api, clap_folder: Path) -> None:
    sounds = [sound(tone(0.3)), sound(tone(0.5, 44_100, channels=2), 44_100, "FLAC", "PCM_16"), sound(tone(3))]
    wanted = run(*load_here(clap_folder), "embed", sounds, modality="audio")
    values = [uri(sounds[0], "audio/wav"), b64encode(sounds[1]).decode(), uri(sounds[2])]

    for path, more in (("/v1/embeddings", {"modality": "audio"}), ("/embeddings_audio", {"modality": "image"})):
        status, answer = await post(media_api, path, model="s", input=values, **more)
        assert status == 200, answer
        np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], wanted, atol=1e-5)

    status, answer = await post(media_api, "/embeddings", model="s", input=[values[0], GOOD], modality="audio")
    assert (status, answer["error"]["param"]) == (422, "input[1]")
    assert "no sound" in answer["error"]["message"]


async def test_sounds_are_not_for_this_model(media_api: Api) -> None:
    status, answer = await post(media_api, "/embeddings_audio", input=GOOD)
    assert (status, answer["error"]["param"]) == (400, "modality")


async def test_models_say_what_they_can(media_api: Api) -> None:
    async with aiohttp.ClientSession(media_api.url) as session:
        found = {}
        for name in ("c", "m", "s"):
            async with session.get(f"/models/{name}") as response:
                found[name] = await response.json()
    assert (found["c"]["capabilities"], found["c"]["modalities"]) == (["embed", "image_embed"], ["text", "image"])
    assert (found["s"]["capabilities"], found["s"]["modalities"]) == (["embed", "audio_embed"], ["text", "audio"])
    assert (found["m"]["capabilities"], found["m"]["modalities"]) == (["embed"], ["text"])
