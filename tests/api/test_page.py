"""The page for people, as text and in a real browser."""

import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from html import unescape
from html.parser import HTMLParser

import aiohttp
import pytest

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.presence import WorkerInfo, beat
from tests.api.conftest import WIDTH, Api, Held, raw, until

EVIL = """"><script>alert(1)</script><b>'$(reboot)&amp;"""


async def page(api: Api, **headers: str) -> str:
    async with aiohttp.ClientSession(api.url) as session, session.get("/", headers=headers) as response:
        assert (response.status, response.content_type) == (200, "text/html")
        return await response.text()


def curl_line(text: str) -> str:
    found = re.search(r'<pre id="curl">(.*?)</pre>', text, re.DOTALL)
    assert found
    return unescape(found[1])


@pytest.fixture
async def loading(queue_url: str) -> AsyncIterator[Held]:
    """A worker that is still loading, and whose every word is an attack."""
    worker = Held(queue_url)
    worker.info = WorkerInfo(
        id="w", model=worker.model, state="loading", stage=EVIL, progress=0.42, engine=EVIL, device=EVIL, dtype=EVIL
    )
    await worker.join()
    yield worker
    await worker.close()


async def test_a_ready_model(api: Api) -> None:
    text = await page(api)

    card = next(part for part in text.split("<article") if "<h3>m</h3>" in part)
    assert '<span class="badge ready">ready</span>' in card
    for fact in ("embed", "dummy", "cpu", "float32", f"{WIDTH}", "512 tokens", "0 online, 0 bulk"):
        assert f"<dd>{fact}</dd>" in card


async def test_a_loading_model_is_shown_escaped(idle_api: Api, loading: Held) -> None:
    await until(lambda: _shows(idle_api, loading.model))
    text = await page(idle_api)

    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;b&gt;&#x27;$(reboot)&amp;amp; 42%" in text
    assert '<meta http-equiv="refresh"' in text


async def test_the_curl_line_works(api: Api) -> None:
    line = curl_line(await page(api))
    answer = subprocess.run(["/bin/sh", "-c", f"{line} --silent"], capture_output=True, timeout=20, check=True).stdout

    assert len(json.loads(answer)["data"][0]["embedding"]) == WIDTH


async def test_the_curl_line_names_the_host_that_was_asked(api: Api) -> None:
    line = curl_line(await page(api, Host="pool.example:8080", **{"X-Forwarded-Proto": "https"}))

    assert line.startswith("curl http://pool.example:8080/v1/embeddings")  # a proxy that nobody trusts says no more


@pytest.mark.parametrize("host", ['"><script>alert(1)</script>', "a;reboot", "$(reboot)", "a'b", "[::1", "a b", "\xff"])
async def test_an_odd_host_is_quoted_or_refused(host: str, api: Api) -> None:
    async with raw(api) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\nHost: " + host.encode("latin-1") + b"\r\n\r\n")
        answer = (await reader.read()).decode("utf-8", "strict")

    assert "<script>alert" not in answer
    assert " 500 " not in answer.splitlines()[0]
    if " 200 " in answer.splitlines()[0] and host.isascii():
        words = subprocess.run(
            ["/bin/sh", "-c", f'set -- {curl_line(answer)}; printf %s "$2"'],
            capture_output=True,
            timeout=10,
            check=True,
        ).stdout
        assert words == b"http://" + host.encode() + b"/v1/embeddings"


async def test_nothing_comes_from_elsewhere(api: Api) -> None:
    links: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(value or "" for name, value in attrs if name in ("href", "src", "action"))

    text = await page(api)
    Links().feed(text)

    links = [link for link in links if not link.startswith("data:")]
    assert not [link for link in links if ":" in link or link.startswith("//")]
    assert not re.search(r"url\(|@import|https?://(?!127\.0\.0\.1|www\.w3\.org)", text)
    async with aiohttp.ClientSession(api.url) as session:
        for link in links:
            async with session.get(f"/{link}") as response:
                assert response.status in (200, 503), link


async def test_with_a_key(start_api: Callable[..., Api]) -> None:
    text = await page(start_api("--api-key", "sesame"))

    assert '-H "Authorization: Bearer $INFINITY_API_KEY"' in curl_line(text)
    assert "sesame" not in text
    assert '-H "Authorization: Bearer $YOUR_KEY"' in curl_line(await page(start_api("--require-key")))


async def test_only_vectors_have_dimensions_and_the_line_to_try_is_for_a_model_of_them(
    start_api: Callable[..., Api],
) -> None:
    with EmbeddedServer.start() as server:
        async with connect(server.url) as redis:
            for name, task in (("a-reranker", "rerank"), ("embedder", "embed")):
                info = WorkerInfo(id=name, model=name, state="ready", tasks=[task], dimensions=77)
                await beat(redis, info, expiry=60.0)
            text = await page(start_api(redis_url=server.url))

    cards = {
        name: next(part for part in text.split("<article") if f"<h3>{name}</h3>" in part)
        for name in ("a-reranker", "embedder")
    }
    assert "<dd>77</dd>" not in cards["a-reranker"]
    assert "<dd>77</dd>" in cards["embedder"]
    assert '"model": "embedder"' in curl_line(text)


@pytest.mark.parametrize(("task", "path"), [("rerank", "/rerank"), ("classify", "/classify"), ("sparse", "/sparse")])
async def test_the_line_to_try_is_what_the_model_is_for(task: str, path: str, start_api: Callable[..., Api]) -> None:
    with EmbeddedServer.start() as server:
        async with connect(server.url) as redis:
            await beat(redis, WorkerInfo(id="w", model="m", state="ready", tasks=[task]), expiry=60.0)
            api = start_api(redis_url=server.url)
            line = curl_line(await page(api))

    assert line.startswith(f"curl {api.url}{path} ")
    assert '"model": "m"' in line


async def test_without_models_and_without_a_queue(start_api: Callable[..., Api]) -> None:
    with EmbeddedServer.start() as server:
        api = start_api(redis_url=server.url)
        assert "No model is served yet." in await page(api)
    assert "The queue cannot be reached now" in await page(api)
    api.stop()


async def _shows(api: Api, model: str) -> bool:
    return model in await page(api)
