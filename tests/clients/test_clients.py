"""
Client libraries as people have them, unchanged, each a program in an environment of their own.

What a program prints is what the library gave it, and is compared with what the server answers to plain HTTP.
"""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.embedded import EmbeddedServer
from tests.api.conftest import Api, _until_ready
from tests.api.worker_here import WorkerHere
from tests.tiny_models import WIDTH, pooling, save_modules, save_network, save_scorer

PYTHON = Path(os.environ.get("CLIENTS", Path(sys.prefix) / "clients" / "bin" / "python"))
"""The environment's; `make test` makes it."""

PROGRAMS = Path(__file__).parent / "programs"
VECTORS, SCORES = "org/vectors", "org/scores"
ASKED: dict[str, Any] = {
    "vectors": VECTORS,
    "scores": SCORES,
    "texts": ["the quick brown fox", "jumps", "over the lazy dog", "again and again"],
    "query": "where is the fox",
    "documents": ["the fox is here", "bananas", "a dog and a fox"],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of two models whose names have a slash in them."""
    root = tmp_path_factory.mktemp("models")
    vectors = save_modules(save_network("bert", root / "vectors"), pooling("mean"), ("Normalize", {}))
    scores = save_scorer("bert", root / "scores")
    with EmbeddedServer.start() as queue, ExitStack() as workers:
        for name, folder in ((VECTORS, vectors), (SCORES, scores)):
            workers.enter_context(WorkerHere(queue.url, name, folder).running())
        api = Api(queue.url)
        asyncio.run(_until_ready(api.url, VECTORS))
        asyncio.run(_until_ready(api.url, SCORES))
        yield api.url
        api.stop()


@pytest.fixture(scope="module")
def vectors(url: str) -> Any:
    answer = _post(f"{url}/embeddings", {"model": VECTORS, "input": ASKED["texts"]})
    return np.array([one["embedding"] for one in answer["data"]])


@pytest.fixture(scope="module")
def scores(url: str) -> list[list[float]]:
    body = {"model": SCORES, "query": ASKED["query"], "documents": ASKED["documents"]}
    return [[one["index"], one["relevance_score"]] for one in _post(f"{url}/rerank", body)["results"]]


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def _run(program: str, url: str) -> Any:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes it"
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("INFINITY_", "PYTHON"))}
    ran = subprocess.run(
        [PYTHON, PROGRAMS / f"{program}.py", url, json.dumps(ASKED)],
        capture_output=True,
        text=True,
        timeout=120,
        env=ours,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", sorted(program.stem for program in PROGRAMS.glob("with_*.py")))
def test_a_library_gets_what_the_server_gives(program: str, url: str, vectors: Any, scores: list[list[float]]) -> None:
    told = _run(program, url)

    assert told["vectors"]
    for how, found in told["vectors"].items():
        np.testing.assert_allclose(found, vectors, atol=1e-6, err_msg=how)
    for how, found in told.get("scores", {}).items():
        assert [index for index, _ in found] == [index for index, _ in scores], how
        np.testing.assert_allclose(found, scores, atol=1e-6, err_msg=how)
    expected = {
        "models": sorted([SCORES, VECTORS]),
        "retrieved": VECTORS,
        "width": 8,
        "bytes": WIDTH // 8,
        "absent": 404,
        "wrong": 400,
        "documents": [ASKED["documents"][int(index)] for index, _ in scores],
        "texts": ASKED["texts"],
        "units": 1,
    }
    for name, fact in told.get("facts", {}).items():
        assert fact == expected.get(name, True), name
