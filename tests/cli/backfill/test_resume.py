"""Killed at any moment and started again, a backfill leaves each document once, as if nothing had happened."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from infinity_pool.broker.errors import InvalidInput
from tests.cli.backfill.conftest import Run, worker

ROWS = 1500
OUTS = ("out.jsonl", "out.npy", "out.parquet")


@pytest.fixture(scope="module")
def slow_url(queue_url: str) -> Iterator[str]:
    """A queue with a model that takes a second for a thousand items."""
    running = worker(queue_url, "--model", "dummy:0.001", "--served-model-name", "slow")
    running.expect(" is ready: ")
    yield queue_url
    running.end()


def write_input(path: Path) -> None:
    """Write rows of which each hundredth is bad."""
    with path.open("w") as file:
        for n in range(ROWS):
            file.write(json.dumps({"id": n} | ({"text": f"{n:>0{n % 97 + 4}}"} if n % 100 else {})) + "\n")


def start(folder: Path, out: str, url: str, *options: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "infinity_pool.cli.main",
        "embed",
        "in.jsonl",
        "--id-field",
        "id",
        "--model",
        "slow",
    ]
    more = ["--redis-url", url, "--out", out, "--commit-seconds", "0.1", "--shard-rows", "700", *options]
    return subprocess.Popen([*command, *more], cwd=folder, stderr=subprocess.PIPE, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    """Give all that a run has written, by name."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name.startswith(("out", "part", "_", "."))]
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.parametrize("out", OUTS)
async def test_killed_again_and_again(out: str, slow_url: str, run: Run, tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
        write_input(folder / "in.jsonl")
    assert await run("embed", "whole/in.jsonl", out=f"whole/{out}", id_field="id", shard_rows=700) == 3
    rng, midway = random.Random(out), 0
    for number in range(3):
        process, before = start(folders[1], out, slow_url), rows_done(folders[1], out)
        while number and rows_done(folders[1], out) == before and process.poll() is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(rng.random() / 3)
        process.kill()
        process.communicate()
        midway += before < rows_done(folders[1], out) < ROWS
    last = start(folders[1], out, slow_url)
    _, told = last.communicate(timeout=60)

    assert last.returncode == 3, told
    assert midway, "every kill came before the start or after the end: nothing was tested"
    as_if, found = (contents(folder) for folder in folders)
    states = [each.pop(f"{out}.state.json") for each in (as_if, found)]
    assert found.keys() == as_if.keys() - {"out.lock"}
    assert {name for name in found if found[name] != as_if[name].replace(b"/whole/", b"/killed/")} == set()
    assert json.loads(states[1])["done"] == ROWS - ROWS // 100
    if out == "out.parquet":
        table = parquet.read_table(folders[1] / out)
        assert table["id"].to_pylist() == [str(n) for n in range(ROWS) if n % 100]


def rows_done(folder: Path, out: str) -> int:
    try:
        return int(json.loads((folder / f"{out}.state.json").read_bytes())["rows"])
    except FileNotFoundError:
        return 0


def test_interrupted_it_says_how_to_go_on(slow_url: str, tmp_path: Path) -> None:
    write_input(tmp_path / "in.jsonl")
    process = start(tmp_path, "out.jsonl", slow_url, "--commit-seconds", "60")
    while not rows_begun(tmp_path):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "the same command goes on from there" in told
    done = rows_done(tmp_path, "out.jsonl")
    lines = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert 0 < done < ROWS
    assert lines == [n for n in range(done) if n % 100]


def rows_begun(folder: Path) -> int:
    path = folder / "out.jsonl"
    return path.stat().st_size if path.exists() else 0


async def test_what_differs_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    assert await run("embed", "in.txt", out="out.npy") == 0
    before = contents(tmp_path)
    assert await run("embed", "in.txt", out="out.npy") == 0
    assert contents(tmp_path) == before

    with pytest.raises(InvalidInput, match=r'options was \{\} and is \{"dimensions":2\}; --restart'):
        await run("embed", "in.txt", out="out.npy", dimensions=2)
    (tmp_path / "in.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(InvalidInput, match=r'inputs was .*"bytes":6.* and is .*"bytes":8'):
        await run("embed", "in.txt", out="out.npy")
    assert await run("embed", "in.txt", out="out.npy", dimensions=2, restart=True) == 0
    assert (tmp_path / "out.npy.ids.jsonl").read_text() == "0\n1\n2\n3\n"


async def test_a_slip_before_anything_was_done_is_no_beginning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text":"a"}\n' * 150)
    with pytest.raises(InvalidInput, match="none of the first 100 rows"):
        await run("embed", "in.jsonl", out="out.npy", field="words")
    assert await run("embed", "in.jsonl", out="out.npy") == 0
    assert len((tmp_path / "out.npy.ids.jsonl").read_text().splitlines()) == 150


@pytest.mark.parametrize("name", ["in.parquet", "in.jsonl.gz"])
async def test_a_file_that_is_not_what_its_name_says(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidInput, match=f"{name} cannot be read as"):
        await run("embed", name, out="out.npy")


async def test_rows_that_changed_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    await run("embed", "in.txt", out="out.jsonl")
    state = tmp_path / "out.jsonl.state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"finished": False}))
    (tmp_path / "in.txt").write_text("a\nX\nc\n")

    with pytest.raises(InvalidInput, match="the first 3 rows have changed since they were done"):
        await run("embed", "in.txt", out="out.jsonl")


async def test_an_output_of_others_is_not_touched(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "out.jsonl").write_text("precious")

    with pytest.raises(InvalidInput, match="is there, and of no backfill"):
        await run("embed", "in.txt", out="out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "out"),
    [("x.jsonl", "x.jsonl"), ("x.parquet/a.jsonl", "x.parquet"), ("x.npy.failures.jsonl", "x.npy")],
)
async def test_an_input_is_not_taken_for_the_output(name: str, out: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"text": "precious"}')
    with pytest.raises(InvalidInput, match="would be read and written"):
        await run("embed", name, out=out, restart=True)
    assert "precious" in (tmp_path / name).read_text()


@pytest.mark.parametrize("out", ["x.parquet", "x.npy"])
async def test_what_is_left_of_others_after_a_restart_is_told(out: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / out).mkdir()
    (tmp_path / out / "precious").touch()
    with pytest.raises(InvalidInput, match="not all of it of a backfill: remove it, or name another"):
        await run("embed", "in.txt", out=out, restart=True)
    assert (tmp_path / out / "precious").exists()


async def test_two_runs_at_once_are_refused(run: Run, tmp_path: Path, slow_url: str) -> None:
    write_input(tmp_path / "in.jsonl")
    first = start(tmp_path, "out.jsonl", slow_url)
    async with asyncio.timeout(30):
        while not (tmp_path / "out.jsonl.lock").exists():
            await asyncio.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # so that it is at it however slow the other is
    with pytest.raises(InvalidInput, match="another run is writing"):
        await run("embed", "in.jsonl", out="out.jsonl", model="slow")
    first.kill()
    first.communicate()
