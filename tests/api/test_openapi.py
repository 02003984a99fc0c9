"""/openapi.json and /docs: what they say is so."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from infinity_pool.broker.embedded import EmbeddedServer
from tests.api.browser import Tab
from tests.api.conftest import Api, Process, _until_ready

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_schema_conformance", "response_headers_conformance", "allow_header_conformance"),
)


@pytest.fixture
def alone(start_api: Callable[..., Api], tmp_path: Path) -> Iterator[Api]:
    """A replica on a queue of its own, that knows of no model which other tests have stopped."""
    with EmbeddedServer.start() as queue:
        options = ["--engine", "dummy", "--model", "dummy", "--served-model-name", "m", "--redis-url", queue.url]
        worker = Process("worker", *options)
        options = ["--max-body", "4000000", "--strict-model-names", "--files", str(tmp_path / "files")]
        api = start_api(*options, redis_url=queue.url)
        asyncio.run(_until_ready(api.url, "m"))
        yield api
        api.stop()
        worker.stop()


def test_what_is_generated_from_the_document_finds_no_fault(alone: Api, tmp_path: Path) -> None:
    options = ["--max-examples", "5", "--seed", "1", "--phases", "examples,coverage,fuzzing", "--no-color"]
    options += [
        "--checks",
        ",".join(CHECKS),
        "--exclude-path-regex",
        "^(/v1/.*|/ready)$",
    ]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{alone.url}/openapi.json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"(\d{4}) generated, \1 passed", ran.stdout), ran.stdout


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/openapi.json"])
async def test_the_document(path: str, http: aiohttp.ClientSession) -> None:
    async with http.get(path) as response:
        told = await response.json()
    assert told["openapi"] == "3.1.0"
    embeddings = told["paths"]["/v1/embeddings"]["post"]
    assert embeddings["summary"] == "Embed texts, images or sounds."
    assert {"200", "400", "401", "404", "413", "422", "429", "500", "503", "504"} <= embeddings["responses"].keys()
    body = told["components"]["schemas"]["EmbeddingsBody"]["properties"]
    assert {kind["type"] for kind in body["input"]["anyOf"]} == {"string", "array", "object"}


async def test_every_path_is_described(http: aiohttp.ClientSession) -> None:
    async with http.get("/openapi.json") as response:
        told = await response.json()
    paths = told["paths"]
    assert {"/embeddings", "/rerank", "/classify", "/score", "/sparse", "/pooling", "/models/{id}"} <= paths.keys()
    for path, methods in paths.items():
        for operation in methods.values():
            assert operation["summary"].endswith("."), path
            assert "`" not in operation["summary"], path
            assert "description" in operation["responses"]["200"]
    groups = {path: paths[path]["post"]["tags"] for path in ("/v1/embeddings", "/embed", "/v2/rerank")}
    assert [group["name"] for group in told["tags"]][:: len(told["tags"]) - 1] == [
        *groups["/v1/embeddings"],
        "This server",
    ]
    assert [*groups.values()] == [["OpenAI, Infinity and vLLM"], ["text-embeddings-inference"], ["Cohere and Jina"]]
    assert paths["/health"]["get"]["tags"] == ["This server"]


async def test_below_a_prefix(start_api: Callable[..., Api]) -> None:
    api = start_api("--url-prefix", "/inner/api/")
    async with aiohttp.ClientSession(api.url) as http:
        for path in ("/inner/api/health", "/health", "/v1/health", "/inner/api/docs/start.js"):
            async with http.get(path) as response:
                assert response.status == 200, path
        async with http.get("/inner/api/openapi.json") as response:
            assert "/inner/api/embeddings" in (await response.json())["paths"]
        async with http.get("/inner/api/v1/health") as response:
            assert response.status == 404


@pytest.mark.browser
async def test_the_page_needs_no_other_host(tab: Tab, api: Api) -> None:
    await tab.open(f"{api.url}/docs")
    shown = "new Promise(done => setInterval(() => { if (document.querySelector('.opblock')) done(true) }, 50))"
    assert await tab.run(shown)
    title = await tab.run("document.querySelector('.info .title').textContent")
    assert title.startswith("Infinity Pool")
    assert await tab.run("document.querySelectorAll('.opblock').length") > 20
    assert tab.complaints() == []
    loaded = await tab.run("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded
    assert all(name.startswith((api.url, "data:", "blob:")) for name in loaded)


async def test_no_other_file_is_given(http: aiohttp.ClientSession) -> None:
    for name in ("none.js", "..%2Fapp.py", "start.js%00"):
        async with http.get(f"/docs/{name}") as response:
            assert response.status == 404
