"""A job that kills its worker each time it runs, and what a person then does with it."""

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.connection import command, connect
from infinity_pool.broker.messages import Job, decode_job, encode_job
from infinity_pool.broker.presence import read_model
from infinity_pool.cli.dead import beginning

from .conftest import PATIENCE, Serving

POISON = "the poison"


def dead(serving: Serving, *options: str) -> "subprocess.CompletedProcess[str]":
    words = ["dead", "--model", "dummy", "--redis-url", serving.queue_url(), *options]
    return subprocess.run(
        [sys.executable, "-m", "infinity_pool.cli.main", *words], capture_output=True, text=True, timeout=PATIENCE
    )


def letters(serving: Serving) -> list[dict[str, Any]]:
    shown = dead(serving, "--json")
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, Any]] = json.loads(shown.stdout)
    return found


async def entry_of(redis: Redis, text: str) -> bytes | None:
    """Find the entry of the job that has a text."""
    for entry, fields in await command(redis, "XRANGE", keys.jobs("dummy", "online"), "-", "+"):
        if decode_job(dict(fields)[b"j"]).items == [text]:
            return bytes(entry)
    return None


async def kill_whoever_runs(redis: Redis, text: str, times: int) -> None:
    """Kill the worker that was given a job, as soon as it has started it, so many times."""
    killed: set[int] = set()
    while len(killed) < times:
        entry = await entry_of(redis, text)
        if entry and int(await redis.hget(keys.attempts("dummy"), entry.decode()) or 0) >= len(killed):
            stream = keys.jobs("dummy", "online")
            for held in await redis.xpending_range(stream, keys.GROUP, entry.decode(), entry.decode(), 1):
                workers = {worker.id: worker.pid for worker in (await read_model(redis, "dummy")).workers}
                consumer = held["consumer"]
                assert isinstance(consumer, bytes)
                pid = workers.get(consumer.decode())
                if pid and pid not in killed:
                    psutil.Process(pid).kill()
                    killed.add(pid)
        await asyncio.sleep(0.02)


async def test_a_poison_fails_alone_and_can_be_tried_again(start: Callable[..., Serving]) -> None:
    options = ("--model", "dummy:0.2", "--engine", "dummy", "--served-model-name", "dummy", "--batch-tokens", "1")
    serving = await asyncio.to_thread(start(Serving, *options, "--replicas", "2").ready)
    over = threading.Event()

    def bystander() -> int:
        count = 0
        while not over.is_set():
            count += 1
            assert serving.embed("x" * count)[0] == count
        return count

    with ThreadPoolExecutor(4) as callers:
        others = [callers.submit(bystander) for _ in range(3)]
        asked = callers.submit(serving.embed, POISON)
        async with connect(serving.queue_url()) as redis:
            try:
                await asyncio.wait_for(kill_whoever_runs(redis, POISON, 3), PATIENCE)
            finally:
                over.set()
            with pytest.raises(urllib.error.HTTPError) as caught:
                await asyncio.to_thread(asked.result)
            assert sum([await asyncio.to_thread(other.result) for other in others]) > 3
            assert await entry_of(redis, POISON) is None

    with caught.value as answer:
        assert (answer.code, answer.headers["x-should-retry"]) == (500, "false")
        assert json.load(answer)["error"]["code"] == "dead_lettered"
    [letter] = letters(serving)
    assert (letter["first"], letter["task"], letter["lane"], letter["items"]) == (POISON, "embed", "online", 1)
    assert letter["reason"] == "its worker died 3 times"
    async with connect(serving.queue_url()) as redis:
        assert (await read_model(redis, "dummy")).dead == 1

    again = dead(serving, "--retry", letter["id"])  # and nobody kills any more
    assert (again.returncode, again.stderr) == (0, f"queued again: {letter['id']}\n")
    assert letters(serving) == []
    async with connect(serving.queue_url()) as redis:
        async with asyncio.timeout(PATIENCE):
            while (await read_model(redis, "dummy")).waiting["online"].items:
                await asyncio.sleep(0.05)
        assert (await read_model(redis, "dummy")).dead == 0
    assert letters(serving) == []


@pytest.fixture
async def buried(dummy: Serving) -> list[str]:
    """The ids of three dead letters."""
    async with connect(dummy.queue_url()) as redis:
        await redis.delete(keys.dead("dummy"))
        texts = ["first", "[red]second[/red]\n" + "x" * 100, "third"]
        jobs = [Job(f"job{n}", "embed", [text] * 2, {}, "replies", "bulk", 9) for n, text in enumerate(texts)]
        ids = [await redis.xadd(keys.dead("dummy"), {"j": encode_job(job), "reason": "a test"}) for job in jobs]
    return [str(entry, "ascii") for entry in ids if isinstance(entry, bytes)]


async def test_the_table_tells_what_there_is(dummy: Serving, buried: list[str]) -> None:
    shown = dead(dummy).stdout

    assert "dead letters of dummy: 3" in shown
    assert all(word in shown for word in (*buried, "a test", "embed", "bulk", "first", "third"))
    assert "[red]second[/red] " + "x" * 22 + "…" in shown


async def test_some_are_dropped_and_all_others_queued_again(dummy: Serving, buried: list[str]) -> None:
    gone = dead(dummy, "--drop", buried[1], "--json")
    assert [letter["id"] for letter in json.loads(gone.stdout)] == [buried[0], buried[2]]
    assert gone.stderr == f"dropped: {buried[1]}\n"

    again = dead(dummy, "--retry-all")
    assert "dead letters of dummy: 0" in again.stdout
    assert again.stderr == f"queued again: {buried[0]}\nqueued again: {buried[2]}\n"


@pytest.mark.parametrize("option", ["--retry", "--drop"])
async def test_a_letter_that_is_not_there(option: str, dummy: Serving, buried: list[str]) -> None:
    for letter_id, words in (("1-1", "no dead letter 1-1"), ("x", "'x' is no id")):
        shown = dead(dummy, option, letter_id)
        assert shown.returncode == 1
        assert words in shown.stderr
        assert len(shown.stderr.splitlines()) == 1
    assert len(letters(dummy)) == 3


def test_a_model_that_nobody_knows(dummy: Serving) -> None:
    for options in ((), ("--json",), ("--retry-all",)):
        shown = dead(dummy, "--model", "dumy", *options)
        assert shown.returncode == 1
        assert shown.stderr == "error: no model 'dumy' is known here; there is: dummy\n"
        assert not shown.stdout


async def test_a_model_that_has_only_a_queue_is_known(dummy: Serving) -> None:
    async with connect(dummy.queue_url()) as redis:
        await redis.xadd(keys.jobs("left", "bulk"), {"j": b""})
        assert dead(dummy, "--model", "left", "--json").stdout == "[]\n"
        await redis.delete(keys.jobs("left", "bulk"))


def test_the_beginning_of_an_item() -> None:
    assert beginning(b"\x89PNG" * 1000) == "4,000 bytes"
    assert beginning(["a query", "a document"]) == "a query | a document"
    assert beginning("x" * 40) == "x" * 40
    assert beginning("a\x1b[2J\u202eb") == "a [2J b"
