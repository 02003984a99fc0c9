"""infinity status: what it computes, and what it shows of a real machine."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from infinity_pool.broker.messages import Lane
from infinity_pool.broker.presence import ModelStatus, Waiting, WorkerInfo
from infinity_pool.cli.status import Batches, Look, Rate, rates, tables, to_json

from .conftest import Serving

WAITING: dict[Lane, Waiting] = {"online": Waiting(3, 1200, 9000), "bulk": Waiting(0, 0, 0)}


def look(at: float, *workers: WorkerInfo) -> Look:
    return Look(at, [ModelStatus("org/model[x]", list(workers), WAITING)])


def worker(name: str, items: int = 0, tokens: int = 0, device: float = 0.0) -> WorkerInfo:
    done = {"items_done": items, "tokens_done": tokens, "device_seconds": device}
    return WorkerInfo(id=name, model="org/model[x]", state="ready", **done, engine="onnx")  # type: ignore[arg-type]


def drawn(look: Look, rates: dict[str, Rate], width: int = 160) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(tables(look, rates))
    return captured.get()


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = look(10.0, worker("old", items=100, tokens=1000))
    after = look(12.0, worker("old", items=150, tokens=2000, device=1.5), worker("new", items=4, tokens=8))
    assert rates(before, after) == {"old": Rate(25.0, 500.0, 0.75), "new": Rate(2.0, 4.0)}


def test_the_table_shows_names_as_they_are_and_depths_by_lane() -> None:
    text = drawn(look(0.0, worker("w", items=12345)), {"w": Rate(7.25, 1000.0)})
    assert "org/model[x]" in text
    assert "3 items, 1,200 tokens" in text
    assert "1 of 1" in text
    for word in ("onnx", "7.2", "1,000", "12,345"):
        assert word in text


def test_batches_are_told_of_where_there_are_any() -> None:
    some = replace(look(0.0), batches=Batches(2, 198))
    assert "batches: 2 running, 198 waiting" in drawn(some, {})
    assert "batches:" not in drawn(look(0.0), {})
    assert to_json(some, {})["batches"] == {"running": 2, "waiting": 198}


def test_dead_letters_are_told_of_where_there_are_any() -> None:
    [model] = look(0.0).models
    some = replace(look(0.0), models=[replace(model, dead=1234)])
    assert "dead letters of org/model[x]: 1,234" in drawn(some, {})
    assert "dead letters" not in drawn(look(0.0), {})
    assert to_json(some, {})["models"][0]["dead_letters"] == 1234


def test_loading_shows_its_stage() -> None:
    loading = WorkerInfo(id="w", model="org/model[x]", stage="exporting", progress=0.4)
    text = drawn(look(0.0, loading), {})
    assert "exporting 40%" in text
    assert "0 of 1" in text


def test_on_a_narrow_terminal_the_least_important_columns_go() -> None:
    one = replace(worker("w", items=123456), host="a-machine-of-name", pid=1234567, device="cuda:0", dtype="bfloat16")
    text = drawn(look(0.0, one), {"w": Rate(1234.5, 123456.0)}, width=80)
    for word in ("org/model[x]", "a-machine-of-name:1234567", "ready", "running", "1,234.5", "123,456"):
        assert word in text
    assert "bfloat16" not in text
    assert "bfloat16" in drawn(look(0.0, one), {}, width=160)


def test_a_name_that_is_wider_than_all_there_is_folds() -> None:
    name = "sentence-transformers/" + "x" * 60
    one = replace(worker("w"), model=name, host="a-machine-of-name", pid=1234567)
    text = drawn(look(0.0, one), {"w": Rate(1234.5, 123456.0)}, width=80)
    assert text.count("x") >= 60
    assert all(word in text for word in ("ready", "running", "1,234.5", "123,456"))
    assert "…" not in text


def test_json_holds_all_a_worker_says() -> None:
    [model] = to_json(look(0.0, worker("w", items=5)), {"w": Rate(1.0, 2.0)})["models"]
    assert model["ready"] is True
    assert model["waiting"]["online"] == {"items": 3, "tokens": 1200, "bytes": 9000}
    assert model["workers"][0]["items_done"] == 5
    assert model["workers"][0]["rate"] == {"items": 1.0, "tokens": 2.0, "device": 0.0}


def status(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "infinity_pool.cli.main", "status", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def on_a_terminal(columns: int, *options: str) -> str:
    """Run it on a terminal, plain and so many columns wide, and give what it shows."""
    ours, its = os.openpty()
    command = [sys.executable, "-m", "infinity_pool.cli.main", "status", *options]
    variables = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    subprocess.run(command, stdin=its, stdout=its, stderr=its, timeout=60, env=variables, check=True)
    os.close(its)
    with os.fdopen(ours, "rb", buffering=0) as shown:
        text = shown.read(2**16).decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_real_machine(dummy: Serving) -> None:
    shown = status("--redis-url", dummy.queue_url(), "--interval", "0.1")
    assert shown.returncode == 0, shown.stderr
    assert "dummy" in shown.stdout
    assert "1 of 1" in shown.stdout
    assert "…" not in shown.stdout  # nothing is cut off

    narrow = on_a_terminal(80, "--redis-url", dummy.queue_url(), "--interval", "0.1")
    assert max(map(len, narrow.splitlines())) <= 80
    assert all(word in narrow for word in ("dummy", "ready", "running", "items/s", "tokens/s"))

    [model] = json.loads(status("--redis-url", dummy.queue_url(), "--interval", "0.1", "--json").stdout)["models"]
    assert model["workers"][0]["engine"] == "dummy"


def test_this_host_is_healthy(dummy: Serving) -> None:
    assert status("--redis-url", dummy.queue_url(), "--here").returncode == 0


@pytest.mark.parametrize("options", [[], ["--here"]])
def test_a_queue_that_is_not_there_is_told_in_a_line(options: list[str]) -> None:
    shown = status("--redis-url", "redis://127.0.0.1:1/0", *options)
    assert shown.returncode == 1
    assert shown.stderr.startswith("error: the queue cannot be reached")
    assert len(shown.stderr.splitlines()) == 1
