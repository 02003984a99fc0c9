"""The commands as they are typed, with models that run here and are stopped at the end."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from pyarrow import parquet

from infinity_pool import SyncClient
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.errors import InvalidInput, ModelNotFound
from tests.cli.backfill.conftest import MODEL, Run
from tests.cli.conftest import Running
from tests.prepared import prepared
from tests.tiny_models import save_scorer
from tests.workers.conftest import MINILM

PAIRS = [["where is the cat", "the cat sits on the mat"], ["where is the cat", "rain"], ["who", "a b c"]]


def infinity(*arguments: str, folder: Path, stdin: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "infinity_pool.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=120)


def test_minilm_run_here(tmp_path: Path) -> None:
    texts = ["a cat sits on the mat", "a kitten is on a rug", "the stock market fell", "", "a cat sits on the mat"]

    done = infinity(
        *("embed", "-", "--format", "txt", "--model", MINILM, "--engine", "torch", "--out", "out.npy"),
        folder=tmp_path,
        stdin="\n".join(texts),
    )

    assert done.returncode == 3, done.stderr
    assert "4 documents in out.npy, 1 failed: out.npy.failures.jsonl" in done.stderr
    vectors = np.load(tmp_path / "out.npy")
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]
    assert (vectors[0] == vectors[3]).all()
    assert [json.loads(line) for line in (tmp_path / "out.npy.ids.jsonl").read_text().splitlines()] == [0, 1, 2, 4]
    assert not [each for each in psutil.process_iter() if str(tmp_path) in " ".join(_environment(each))]


def _environment(process: psutil.Process) -> list[str]:
    try:
        return [process.cwd()]
    except psutil.Error:
        return []


def test_a_worker_that_refuses_ends_it(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")

    done = infinity("embed", "in.txt", "--model", str(tmp_path / "absent"), "--out", "out.npy", folder=tmp_path)

    assert done.returncode == 1
    assert "cannot run" in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--redis-url", "redis://x", "--url", "http://x"], "give one"),
        (["--url", "redis://x"], "--url is a server's, http:// or https://, not redis://x"),
        (["--redis-url", "http://x"], "--redis-url is a Redis, not a server: --url http://x"),
        (["--redis-url", "redis://x", "--api-key", "k"], "--api-key is for a server, which --url names"),
        (["--format", "npy"], "--format"),
        (["--redis-url", "redis://x", "--engine", "torch"], "--engine is for a model that is run here"),
        (["--max-in-flight", "0"], "--max-in-flight"),
        (["--format", "doc"], "--format"),
    ],
)
def test_options_that_will_not_do(options: list[str], told: str, tmp_path: Path) -> None:
    done = infinity("embed", "in.txt", "--model", "m", "--out", "out.npy", *options, folder=tmp_path)

    assert done.returncode == 2
    assert told in done.stderr


def test_top_n_is_of_a_list(tmp_path: Path) -> None:
    ask = ("rerank", "in.jsonl", "--model", "m", "--out", "out.jsonl", "--redis-url", "redis://x", "--top-n", "2")
    done = infinity(*ask, folder=tmp_path)
    assert done.returncode == 2
    assert "--top-n is of a list of documents" in done.stderr


def test_only_vectors_have_a_number_format() -> None:
    for name, has_it in (("embed", True), ("rerank", False), ("classify", False)):
        command = importlib.import_module(f"infinity_pool.cli.{name}").command
        assert ("embedding_dtype" in [each.name for each in command.params]) == has_it


def test_without_standard_streams(queue_url: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    ask = f"{sys.executable} -m infinity_pool.cli.main embed --model {MODEL} --redis-url {queue_url}"

    def shell(line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert shell(f"{ask} in.txt --out out.npy <&- >&- 2>&-").returncode == 0
    closed = shell(f"{ask} - --format txt --out closed.npy <&-")
    assert (closed.returncode, closed.stderr) == (2, "error: standard input is closed\n")
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    piped = shell(f"cat in.parquet | {ask} - --format parquet --out piped.npy")
    assert piped.returncode == 2
    assert "it is a pipe: save it as a file" in piped.stderr


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A queue with a reranker and a classifier of three labels, whose scores say nothing."""
    root = tmp_path_factory.mktemp("scorers")
    folders = {name: save_scorer("bert", root / name, labels=n) for name, n in (("reranker", 1), ("classifier", 3))}
    with EmbeddedServer.start() as server:
        started = [
            Running("worker", *prepared(folder), "--redis-url", server.url, "--batch-tokens", "256")
            for folder in folders.values()
        ]
        for each in started:
            each.expect(" is ready: ")
        yield server.url
        for each in started:
            each.end()


async def test_rerank(scorers: str, run: Run, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"query": query, "document": document} for query, document in PAIRS]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lists: list[dict[str, Any]] = [
        {"query": "where", "documents": ["a", "b c", "d"]},
        {"query": "who", "documents": ["e"]},
    ]
    lists += [{"query": "bad", "documents": ["a", None]}, {"query": "bad", "documents": []}]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))

    ask = {"model": "reranker", "redis_url": scorers}
    assert await run("rerank", "in.jsonl", out="out.npy", **ask) == 0
    assert await run("rerank", "lists.jsonl", out="out.parquet", documents_field="documents", **ask) == 3

    with SyncClient(scorers) as client:
        expected = client.submit("reranker", "rerank", PAIRS).outputs
        several = client.submit("reranker", "rerank", [["where", text] for text in ("a", "b c", "d")]).outputs
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), np.ravel(np.asarray(expected)), atol=1e-5)
    scores = parquet.read_table(tmp_path / "out.parquet")["scores"].to_pylist()
    assert [len(row) for row in scores] == [3, 1]
    np.testing.assert_allclose(scores[0], np.ravel(np.asarray(several)), atol=1e-5)
    best = {"documents_field": "documents", "top_n": 2, **ask}
    assert await run("rerank", "lists.jsonl", out="best.parquet", **best) == 3
    assert await run("rerank", "lists.jsonl", out="best.jsonl", **best) == 3
    rows = parquet.read_table(tmp_path / "best.parquet").to_pylist()
    assert rows == [
        {"id": number, "indices": places, "scores": [all_of[place] for place in places]}
        for number, all_of in enumerate(scores)
        if (places := sorted(range(len(all_of)), key=lambda place: -all_of[place])[:2])
    ]
    read = [json.loads(line) for line in (tmp_path / "best.jsonl").read_text().splitlines()]
    assert [row["indices"] for row in read] == [row["indices"] for row in rows]
    with pytest.raises(InvalidInput, match="top_n was 2 and is null"):
        await run("rerank", "lists.jsonl", out="best.jsonl", documents_field="documents", **ask)
    told = [json.loads(line) for line in (tmp_path / "out.parquet.failures.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in told] == ["documents[1] is no text but null", "documents is empty"]


async def test_classify(scorers: str, run: Run, tmp_path: Path) -> None:
    rows = [{"text": "one"}, {"text": ["a pair", "of two"]}, {"text": ["a", "b", "c"]}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    ask = {"model": "classifier", "redis_url": scorers}
    assert await run("classify", "in.jsonl", out="out.jsonl", **ask) == 3
    assert await run("classify", "in.jsonl", out="out.parquet", **ask) == 3

    with SyncClient(scorers) as client:
        expected = client.classify("classifier", ["one", ["a pair", "of two"]])  # type: ignore[list-item]
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    table = parquet.read_table(tmp_path / "out.parquet")
    labels = (table.schema.metadata or {})[b"labels"].decode().split("\n")
    for place, labels_of in enumerate(expected):
        assert found[place]["label"] == labels_of[0].label
        assert found[place]["scores"] == pytest.approx(dict(labels_of), abs=1e-5)
        row = dict(zip(labels, table["scores"][place].as_py(), strict=True))
        assert row == pytest.approx(dict(labels_of), abs=1e-5)
    failed = json.loads((tmp_path / "out.jsonl.failures.jsonl").read_text())
    assert failed["reason"] == "text has 3 texts, not two"


async def test_a_model_that_has_no_labels(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(InvalidInput, match="m cannot classify, only embed"):
        await run("classify", "in.txt", out="out.jsonl")


async def test_a_wrong_key_will_not_do(guarded_url: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    ask = ("embed", "in.txt", "--model", MODEL, "--out", "out.jsonl", "--url", guarded_url)

    done = infinity(*ask, "--api-key", "another-key", folder=tmp_path)

    assert (done.returncode, done.stderr) == (2, "error: the key is wrong\n")


def test_neither_the_api_nor_a_worker_brings_these_libraries_along() -> None:
    modules = ("api.server", "workers.process", "cli.embed")
    code = f"import sys, {', '.join(f'infinity_pool.{each}' for each in modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "fsspec"} & {*done.stdout.split()}


@pytest.fixture(scope="module")
def guarded_url(queue_url: str) -> Iterator[str]:
    """An API with the key sesame-key."""
    api = Running("api", "--port", "0", "--redis-url", queue_url, "--api-key", "sesame-key")
    try:
        api.expect("listening on ")
        yield api.output.partition("listening on ")[2].split()[0]
    finally:
        api.end()


async def test_a_server_over_http(guarded_url: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{n:>0{n % 40 + 4}}\n" for n in range(500)))
    ask = {"url": guarded_url, "api_key": "sesame-key", "redis_url": ""}

    assert await run("embed", "in.txt", out="out.npy", model=MODEL, **ask) == 0
    with pytest.raises(ModelNotFound, match=f"'absent' is served there; there is: {MODEL}"):  # not as a request is
        await run("embed", "in.txt", out="absent.npy", model="absent", **ask)

    assert np.load(tmp_path / "out.npy")[:, 0].tolist() == [n % 40 + 4 for n in range(500)]
