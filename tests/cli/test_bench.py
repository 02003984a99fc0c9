"""infinity bench: its texts, its connection, what it measures and shows, and a run on a real machine."""

import asyncio
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import pytest
from aiohttp import web
from rich.console import Console

from infinity_pool.cli.bench.connection import Connection
from infinity_pool.cli.bench.corpus import texts
from infinity_pool.cli.bench.load import Amount, Target, run
from infinity_pool.cli.bench.measured import Measured
from infinity_pool.cli.bench.models import only_model
from infinity_pool.cli.bench.report import Bare, Report, Row
from infinity_pool.cli.bench.scenarios import SCENARIOS, Clients, Scenario

from .conftest import Serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    """Serve /embeddings by a handler, and give the URL."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


def test_texts_follow_the_seed_and_are_all_different() -> None:
    some = texts(random.Random(1), "short", 2000)
    assert some == texts(random.Random(1), "short", 2000)
    assert some != texts(random.Random(2), "short", 2000)
    assert len(set(some)) == 2000
    assert {len(text.split()) for text in some} == set(range(6, 17))


def test_mixed_texts_are_mostly_short_and_sometimes_long() -> None:
    lengths = sorted(len(text.split()) for text in texts(random.Random(1), "mixed", 4000))
    assert 35 <= lengths[2000] <= 45
    assert lengths[0] >= 3
    assert lengths[-1] == 300


async def test_a_connection_is_kept_and_reads_bodies_of_both_kinds() -> None:
    peers = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport
        peers.add(request.transport.get_extra_info("peername"))
        text = (await request.json())["input"][0]
        if text == "refuse":
            return web.json_response({"error": "no"}, status=429)
        if text == "stream":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            for _ in range(3):
                await response.write(b"x" * 50_000)
            return response
        return web.Response(body=b"y" * 100_000)

    async with served(answer) as url:
        connection = await Connection.open(url)
        target = Target(url, "m")
        plain = await connection.send(target.request(["plain"]))
        assert (plain.status, plain.length) == (200, 100_000)
        streamed = await connection.send(target.request(["stream"]))
        assert streamed.status == 200
        assert streamed.length > 150_000
        refused = await connection.send(target.request(["refuse"]))
        assert (refused.status, refused.start) == (429, b'{"error": "no"}')
        connection.close()
    assert len(peers) == 1


async def test_a_lost_connection_is_an_error_and_not_the_end() -> None:
    answers = iter(range(1000))

    async def answer(request: web.Request) -> web.StreamResponse:
        if next(answers) % 5 == 4:
            assert request.transport
            request.transport.close()
        return web.Response(body=b"{}")

    async with served(answer) as url:
        scenario = Scenario("", Clients(2, 1, "short"), 0)
        outcome = await run(Target(url, "m"), scenario, Amount(50), lambda part: None)
    assert len(outcome.front.latencies) == 40
    assert outcome.front.errors == Counter({"ConnectionResetError": 10})


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match=r"refused|Connect"):
        await run(Target("http://127.0.0.1:1", "m"), SCENARIOS["s1"], Amount(1), lambda part: None)


async def test_requests_say_what_they_should_and_each_client_has_one_at_a_time() -> None:
    bodies, running, most = [], 0, 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        bodies.append(await request.json())
        assert request.headers["Authorization"] == "Bearer key"
        await asyncio.sleep(0.002)
        running -= 1
        return web.Response(body=b"{}")

    async with served(answer) as url:
        scenario = Scenario("", Clients(3, 4, "short"), 0)
        outcome = await run(Target(url, "m", "key"), scenario, Amount(30), lambda part: None)
    counted = bodies[-30:]
    assert most == 3
    assert len(outcome.front.latencies) == 30
    assert len({text for body in counted for text in body["input"]}) == 120
    assert {body["model"] for body in counted} == {"m"}
    assert outcome.front.items_per_second == pytest.approx(4 * outcome.front.requests_per_second)


async def test_those_behind_are_measured_while_those_in_front_are() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.001 * len((await request.json())["input"]))
        return web.Response(body=b"{}")

    async with served(answer) as url:
        scenario = Scenario("", Clients(1, 1, "short"), 0, behind=Clients(2, 10, "short"))
        outcome = await run(Target(url, "m"), scenario, Amount(1, seconds=0.5), lambda part: None)
    assert outcome.behind
    assert outcome.behind.seconds == outcome.front.seconds == pytest.approx(0.5, abs=0.2)
    assert 0 < outcome.behind.requests_per_second < 250
    assert outcome.behind.items == 10


async def test_what_spans_an_edge_of_the_time_counts_in_part() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3 if len((await request.json())["input"]) == 10 else 0.001)
        return web.Response(body=b"{}")

    async with served(answer) as url:
        scenario = Scenario("", Clients(1, 1, "short"), 0, behind=Clients(30, 10, "short"))
        outcome = await run(Target(url, "m"), scenario, Amount(1, seconds=0.5), lambda part: None)
    assert outcome.behind
    assert outcome.behind.requests_per_second == pytest.approx(100, rel=0.1)  # whole ones would be 60 or 120


def test_the_part_of_a_request_within_a_time() -> None:
    measured = Measured(8)
    for started, ended in ((0.0, 4.0), (2.0, 6.0), (3.5, 4.5), (0.0, 2.0), (7.0, 8.0)):
        measured.add(started, ended)
    inside = measured.within(3.0, 5.0)
    assert inside.items_per_second == pytest.approx(8 * (0.25 + 0.5 + 1.0) / 2)
    assert inside.latencies == [4.0, 1.0]


@pytest.mark.parametrize("behind", [None, Clients(2, 4, "short")])
async def test_a_server_that_only_refuses_is_left_alone_after_the_warm_up(behind: Clients | None) -> None:
    asked = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.json_response({"error": "no such model"}, status=404)

    async with served(answer) as url:
        scenario = Scenario("", Clients(2, 1, "short"), 0, behind)
        outcome = await run(Target(url, "m"), scenario, Amount(1000, seconds=60.0), lambda part: None)
    refused = outcome.behind or outcome.front
    assert refused.errors == Counter({'404 {"error": "no such model"}': 20})
    assert not refused.latencies
    assert asked == 20


def test_percentiles_are_in_milliseconds() -> None:
    measured = Measured(1, seconds=2.0, latencies=[each / 1000 for each in range(100, 0, -1)])
    assert [measured.percentile(percent) for percent in (50, 95, 99)] == pytest.approx([51, 96, 100])
    assert measured.requests_per_second == 50
    assert math.isnan(Measured(1).percentile(50))


def test_the_table_has_ratios_to_the_other_server_and_to_the_bare_model() -> None:
    quick = Measured(4, 1.0, [0.01] * 100)
    slow = Measured(4, 2.0, [0.02] * 100, Counter({"500 oops": 3}))
    report = Report(["a:1", "b:2"], [Row("s2", "about", [quick, slow], Bare(500.0))])
    console = Console(width=120)
    with console.capture() as captured:
        console.print(report.table())
    text = captured.get()
    assert "2.00x" in text  # twice the requests
    assert "0.50x" in text  # half the time
    assert "0.80x" in text  # of the bare model
    assert list(report.errors()) == ["s2, b:2: 3 x 500 oops"]
    assert report.to_json()[1]["items_per_s"] == 200


@asynccontextmanager
async def listing(models: object, status: int = 200) -> AsyncIterator[str]:
    """Serve a list of models, for those who have the key, and give the URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        allowed = request.headers.get("Authorization") == "Bearer key"
        return web.json_response(models, status=status if allowed else 401)

    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


ONE: dict[str, object] = {"data": [{"id": "org/one"}, {"id": "gone", "ready": False}]}
TWO: dict[str, object] = {"data": [{"id": "a"}, {"id": "b"}]}


@pytest.mark.parametrize(
    ("models", "status", "usual", "found"),
    [
        (ONE, 200, "", "org/one"),
        (ONE, 200, "other", "org/one"),
        ([{"id": "bare"}], 200, "", "bare"),
        (TWO, 200, "b", "b"),
        ({}, 200, "usual", "usual"),
        (ONE, 404, "usual", "usual"),
    ],
)
async def test_the_model_is_the_only_one_there_is(models: object, status: int, usual: str, found: str) -> None:
    async with listing(models, status) as url:
        for base in (url, f"{url}/v1"):
            assert await asyncio.to_thread(only_model, base, "key", usual=usual) == found


@pytest.mark.parametrize(
    ("models", "key", "usual", "complaint"),
    [
        (TWO, "key", "", "serves a, b: choose one with --model"),
        (TWO, "key", "c", "serves a, b: choose one with --compare-model"),
        ({}, "key", "", "name it with --model"),
        (ONE, "wrong", "", "401"),
    ],
)
async def test_where_the_choice_is_not_ours(models: object, key: str, usual: str, complaint: str) -> None:
    async with listing(models) as url:
        with pytest.raises(click.UsageError, match=complaint):
            await asyncio.to_thread(only_model, url, key, usual=usual)


def bench(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "infinity_pool.cli.main", "bench", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_a_real_machine_beside_another_way_into_it(dummy: Serving, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    shown = bench(
        *("--url", dummy.url, "--prefix", "/v1", "--compare", dummy.url, "--api-key", "sesame-key"),
        *("--scenario", "s1,s5,control", "--requests", "40", "--json", str(file)),
    )
    assert shown.returncode == 0, shown.stderr
    assert "ratio to the other" in shown.stdout
    figures = json.loads(file.read_text())
    assert [each["scenario"] for each in figures] == [
        *["s1"] * 2,
        *["s5"] * 2,
        *["s5 behind"] * 2,
        *["control"] * 2,
    ]
    assert all(each["req_per_s"] > 0 and not each["errors"] for each in figures)
    assert "sesame-key" not in shown.stdout + shown.stderr


def test_errors_are_shown_and_fail_the_run(dummy: Serving) -> None:
    shown = bench("--url", dummy.url, "--model", "dummy", "--scenario", "s1", "--requests", "5")  # without the key
    assert shown.returncode == 1
    assert "20 x 401" in shown.stderr  # the warm-up, and no more


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--scenario", "s1,s9"], "'s9'"),
        (["--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be asked for its models"),
        (["--url", "127.0.0.1:7997"], "is no URL of a server"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_line(options: list[str], complaint: str) -> None:
    shown = bench(*options)
    assert shown.returncode in (1, 2)
    assert complaint in shown.stderr
    assert "Traceback" not in shown.stderr


async def test_the_load_generator_costs_little(dummy: Serving) -> None:
    began = time.process_time()
    await run(Target(dummy.url, "dummy", "sesame-key"), SCENARIOS["s2"], Amount(2000), lambda part: None)
    assert (time.process_time() - began) / 2000 < 150e-6
