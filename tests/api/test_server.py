"""The process: what it weighs, how it starts and how it ends."""

import asyncio
import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from infinity_pool.broker.embedded import EmbeddedServer
from tests.api.conftest import PATIENCE, Api, Held, raw, until

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def own(start_api: Callable[..., Api]) -> Api:
    """A replica that the test may end."""
    return start_api()


async def ask(api: Api, model: str, session: aiohttp.ClientSession) -> tuple[int, str | None]:
    """Give the status of an answer, and what it says of its connection."""
    async with session.post(f"{api.url}/v1/embeddings", data=json.dumps({"model": model, "input": "a"})) as response:
        await response.read()
        return response.status, response.headers.get("Connection")


async def test_it_stays_small(own: Api, api: Api) -> None:
    body = json.dumps({"model": "m", "input": ["a short text"] * 2000})
    async with aiohttp.ClientSession(own.url, headers=JSON) as session:

        async def caller() -> None:
            for _ in range(25):
                assert (await ask(own, "m", session))[0] == 200

        await asyncio.gather(*(caller() for _ in range(40)))
        for _ in range(5):
            async with session.post("/v1/embeddings", data=body) as response:
                assert len((await response.json())["data"]) == 2000

    assert psutil.Process(own.process.pid).memory_info().rss < 120e6


async def test_what_a_long_body_needed_is_given_back(own: Api, api: Api) -> None:
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    body = json.dumps({"model": "m", "input": ["some words and more " * 1300] * 2048})  # 53 MB
    async with aiohttp.ClientSession(own.url, headers=JSON) as session:
        for _ in range(2):
            async with session.post("/v1/embeddings", data=io.BytesIO(body.encode())) as response:
                assert response.status == 200

    async def small() -> bool:
        return process.memory_info().rss < before + 30e6

    await until(small)


def test_no_model_library_is_loaded() -> None:
    modules = "infinity_pool.api.server, infinity_pool.api.clients.sync_client, infinity_pool.cli.api"
    script = f"import {modules}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert "infinity_pool.api.server" in loaded
    assert not {"torch", "transformers", "tokenizers", "onnxruntime", "pandas", "scipy"}.intersection(loaded)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_what_is_in_hand_is_finished(how: signal.Signals, own: Api, held: Held) -> None:
    async with aiohttp.ClientSession(headers=JSON) as session:
        asked = [asyncio.create_task(ask(own, held.model, session)) for _ in range(5)]
        deliveries = [await held.take() for _ in asked]
        async with raw(own) as (reader, _):
            own.process.send_signal(how)
            await until(lambda: _refused(own))
            assert await reader.read() == b""  # an idle connection is no reason to stay
        for delivery in deliveries:
            await held.answer(delivery, width=100_000)

        assert await asyncio.gather(*asked) == [(200, "close")] * 5
    assert await asyncio.to_thread(own.process.wait, PATIENCE) == 0


async def test_a_second_signal_leaves_at_once(own: Api, held: Held) -> None:
    async with aiohttp.ClientSession(headers=JSON) as session:
        asked = asyncio.create_task(ask(own, held.model, session))
        await held.take()
        own.process.send_signal(signal.SIGTERM)
        await until(lambda: _refused(own))
        own.process.send_signal(signal.SIGTERM)

        with pytest.raises(aiohttp.ClientError):
            await asked
    await asyncio.to_thread(own.process.wait, 5)
    assert not [line for line in own.log if "Traceback" in line]


def test_a_port_that_is_taken(queue_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "infinity_pool.cli.api", "--port", port, "--redis-url", queue_url],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    assert done.returncode != 0
    assert port in done.stderr
    assert "Traceback" not in done.stderr


async def test_two_replicas_on_one_port(start_api: Callable[..., Api]) -> None:
    first = start_api("--reuse-port")
    second = start_api("--reuse-port", "--port", first.url.split(":")[-1])

    assert first.url == second.url
    seen = set()
    for _ in range(200):
        async with aiohttp.ClientSession() as session, session.get(f"{first.url}/health") as response:
            seen.add(response.headers["X-Request-Id"].split("-")[0])
        if len(seen) == 2:
            break
    assert len(seen) == 2
    first.stop()
    second.stop()


async def test_a_queue_that_goes(start_api: Callable[..., Api]) -> None:
    with EmbeddedServer.start() as server:
        api = start_api(redis_url=server.url)
        held = Held(server.url)
        await held.join()
        async with aiohttp.ClientSession(api.url) as session, session.get("/ready") as response:
            assert response.status == 200
        await held.close()
    async with aiohttp.ClientSession(api.url, headers=JSON) as session:
        for path, status in (("/health", 200), ("/ready", 503), ("/metrics", 200), ("/v1/models", 503), ("/", 200)):
            async with session.get(path) as response:
                assert response.status == status, path
        assert (await ask(api, held.model, session))[0] == 503
    api.stop()


async def test_a_queue_that_comes_late(start_api: Callable[..., Api], tmp_path: Path) -> None:
    api = start_api(redis_url=f"unix://{tmp_path}/redis.sock")
    async with aiohttp.ClientSession(api.url, headers=JSON) as session:
        assert (await ask(api, "m", session))[0] == 503
        with EmbeddedServer.start(tmp_path) as server:
            held = Held(server.url)
            await held.join()
            asked = asyncio.create_task(ask(api, held.model, session))
            while not asked.done():  # the job may come twice, as its reply channel is new
                for delivery in await held.consumer.take("online", 1):
                    await held.answer(delivery)
            assert (await asked)[0] == 200
            await held.close()
    api.stop()


async def _refused(api: Api) -> bool:
    try:
        async with raw(api):
            return False
    except ConnectionRefusedError:
        return True
