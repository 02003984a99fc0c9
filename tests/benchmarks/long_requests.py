"""
What long requests cost an API process, and what they cost the short ones beside them.

    python -m tests.benchmarks.long_requests

First the CPU time of the event loop's thread for one request, and the longest that the loop was held up, alone in a
process; then the latency of single texts to a real replica, alone and beside callers who send long texts or take large
answers.
"""

import asyncio
import json
import multiprocessing
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
import uvloop
from aiohttp import web
from rich.console import Console
from rich.table import Table

from infinity_pool.api.bodies.reading import read
from infinity_pool.api.embedding import EmbeddingsBody
from infinity_pool.api.rendering import Encoding, embeddings_response, json_response
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.messages import Result
from infinity_pool.cli.bench.connection import Connection
from infinity_pool.cli.bench.load import Target
from tests.api.conftest import Api, Held, Process, _until_ready

ROWS = np.random.default_rng(1).standard_normal((2048, 1024), np.float32)
WIDE = "held-1"  # as the first one of a process is called
PEER = 0.273
"""s that Infinity's path takes for 2048 x 1024 as JSON."""
TICK = 0.001  # s
ROUNDS = 4
SECONDS = 8.0
WORDS = "some words and more "
LONG = {
    "a text of 10 MB": WORDS * 500_000,
    "a text of 10 MB, many escapes": 'say "so"\n' * 1_000_000,
    "2,048 texts, 53 MB": [WORDS * 1300] * 2048,
    "2,000 rows of 5,000 token ids, 70 MB": [[12345] * 5000] * 2000,
}


class Cost(NamedTuple):
    """Seconds of the loop's thread, and the longest that nothing else ran."""

    loop: float
    longest: float


class Ticks:
    """Measures what the loop's thread did between two ticks of a timer; CPU time, as others use the machine too."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(TICK)
            self.longest = max(self.longest, time.thread_time() - began)


async def answer(request: web.Request) -> web.Response:
    """Give many vectors."""
    request.app[BEGAN].append(time.thread_time())
    encoding: Encoding = "base64" if request.path == "/base64" else "float"
    return embeddings_response("m", Result("job", ROWS, 5), encoding, None)


async def take(request: web.Request) -> web.Response:
    """Read a long body."""
    request.app[BEGAN].append(time.thread_time())
    return json_response(len((await read(request, EmbeddingsBody, 60.0, 60.0)).input))


BEGAN = web.AppKey("began", list[float])


async def costs() -> dict[str, Cost]:
    """Measure each kind of request, alone."""
    app = web.Application(client_max_size=2**27)
    app[BEGAN] = []
    app.add_routes([web.get("/float", answer), web.get("/base64", answer), web.post("/", take)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    found = {
        "2048 x 1024 as JSON": await cost(app, curl(f"{url}/float")),
        "2048 x 1024 as base64": await cost(app, curl(f"{url}/base64")),
    }
    for name, text in LONG.items():
        with body({"model": "m", "input": text}) as file:
            found[name] = await cost(app, curl(f"{url}/", file))
    await runner.cleanup()
    return found


async def cost(app: web.Application, command: Sequence[str]) -> Cost:
    """Give the least of some rounds, since others use the machine too."""
    rounds = []
    for _ in range(ROUNDS):
        ticks = Ticks()
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        ticking = asyncio.create_task(ticks.run())
        assert await process.wait() == 0, command
        ticking.cancel()
        rounds.append(Cost(time.thread_time() - app[BEGAN].pop(), ticks.longest))
    return Cost(min(one.loop for one in rounds), min(one.longest for one in rounds))


@contextmanager
def body(content: object) -> Iterator[str]:
    """Write a request's body into a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(json.dumps(content).encode())
        file.flush()
        yield file.name


def curl(url: str, file: str = "") -> list[str]:
    """Ask by another process, which reads the answer and does nothing with it."""
    data = ["--header", "Content-Type: application/json", "--header", "Expect:", "--data-binary", f"@{file}"]
    return ["curl", "--silent", "--show-error", "--fail", "--output", "/dev/null", *(data if file else []), url]


def answer_widely(url: str) -> None:
    """Be a worker whose vectors are wide, in a process of its own."""

    async def serve() -> None:
        held = Held(url)
        assert held.model == WIDE
        await held.join()
        while True:
            await held.answer(await held.take("bulk"), width=ROWS.shape[1])

    asyncio.run(serve())


def beside(api: Api, model: str, files: dict[str, str]) -> Iterator[tuple[str, list[float]]]:
    """Give the latencies of single texts, alone and beside each kind of long request, one after the other."""
    yield "alone", latencies(api.url, model)
    for name, file in files.items():
        command = curl(f"{api.url}/v1/embeddings", file)
        loop = f"while {' '.join(repr(part) for part in command)}; do :; done"
        behind = subprocess.Popen(["bash", "-c", loop])
        time.sleep(0.5)
        yield f"beside {name}", latencies(api.url, model)
        assert behind.poll() is None, f"{name} failed"
        behind.terminate()
        behind.wait()


def latencies(url: str, model: str) -> list[float]:
    """Send single texts, twenty a second, and give the seconds that each took."""

    async def ask() -> list[float]:
        connection = await Connection.open(url)
        request = Target(f"{url}/v1", model).request(["a short text"])
        found = []
        until = time.perf_counter() + SECONDS
        while (began := time.perf_counter()) < until:
            assert (await connection.send(request)).status == 200
            found.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)
        connection.close()
        return found

    return uvloop.run(ask())


def main() -> None:
    """Measure, and print both tables."""
    table = Table("request", "loop, ms", "of the peer's 273 ms", "longest, ms")
    for name, one in uvloop.run(costs()).items():
        ratio = f"{one.loop / PEER:.2f}" if "x" in name.split() else ""
        table.add_row(name, f"{one.loop * 1e3:.0f}", ratio, f"{one.longest * 1e3:.1f}")
    Console().print(table)
    table = Table("single texts", "p50, ms", "p99, ms")
    with EmbeddedServer.start() as server, ExitStack() as ending:
        options = ["--engine", "dummy", "--model", "dummy", "--served-model-name", "m", "--redis-url", server.url]
        worker, api = Process("worker", *options), Api(server.url, "--online-max-items", "8")
        wide = multiprocessing.get_context("spawn").Process(target=answer_widely, args=(server.url,), daemon=True)
        ending.callback(worker.stop)
        ending.callback(api.stop, signal.SIGKILL)
        wide.start()
        ending.callback(wide.kill)
        for name in ("m", WIDE):
            asyncio.run(_until_ready(api.url, name))
        many = {"model": WIDE, "input": ["a"] * len(ROWS)}
        with (
            body(many) as as_json,
            body({**many, "encoding_format": "base64"}) as as_base64,
            body({"model": "m", "input": [WORDS * 50_000] * 10}) as ten,
        ):
            files = {"large answers as JSON": as_json, "as base64": as_base64, "bodies of 10 MB": ten}
            for name, found in beside(api, "m", files):
                table.add_row(name, f"{np.median(found) * 1e3:.1f}", f"{np.quantile(found, 0.99) * 1e3:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
