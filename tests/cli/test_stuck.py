"""infinity serve, with workers whose process lives and does nothing: they are replaced, and their work is done."""

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from .conftest import PATIENCE, Serving, gone

Start = Callable[..., Serving]


def serve(start: Start, *options: str, model: str = "dummy") -> Serving:
    own = ("--model", model, "--engine", "dummy", "--served-model-name", "dummy", "--stall-timeout", "1")
    return start(Serving, *own, *options).ready()


def status(serving: Serving, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(serving.url + path, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stopped_worker_is_replaced_and_its_work_done(start: Start) -> None:
    serving = serve(start)
    worker = serving.children()["cli.worker"]
    family = [worker, *worker.children(recursive=True)]
    worker.suspend()
    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(serving.embed, "x" * length) for length in range(1, 9)]
        until(lambda: status(serving, "/ready")[0] == 503)
        assert status(serving, "/health")[0] == 200
        assert '"dummy":"no worker is alive"' in status(serving, "/ready")[1]

        assert [answer.result()[0] for answer in answers] == list(range(1, 9))
    assert "is silent, though its process lives: it is killed" in serving.output
    assert gone(family, 5)
    assert serving.children()["cli.worker"].pid != worker.pid
    until(lambda: status(serving, "/ready")[0] == 200)


def test_a_worker_that_cannot_get_on_is_replaced(start: Start) -> None:
    serving = serve(start)
    worker = serving.children()["cli.worker"]
    pool = [each for each in worker.children(recursive=True) if "spawn_main" in " ".join(each.cmdline())]
    assert len(pool) == 1
    pool[0].suspend()  # the worker's heart beats on

    assert serving.embed("x" * 10_000)[0] == 10_000  # too long to be prepared in passing

    assert "is stuck, with no batch finished for" in serving.output
    assert gone([worker, *pool], 5)


def test_a_slow_worker_is_left_alone(start: Start) -> None:
    serving = serve(start, "--batch-tokens", "1", model="dummy:0.3")
    worker = serving.children()["cli.worker"]
    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(serving.embed, "x" * length) for length in range(1, 8)]
        assert [answer.result()[0] for answer in answers] == list(range(1, 8))

    assert serving.children()["cli.worker"].pid == worker.pid
    assert "is killed" not in serving.output


def test_a_stopped_api_is_replaced(start: Start) -> None:
    serving = serve(start)
    api = serving.children()["cli.api"]
    api.suspend()

    serving.expect("api is silent, though its process lives: it is killed")
    assert gone([api], 5)
    until(lambda: answers(serving))
    assert serving.children()["cli.api"].pid != api.pid
    serving.signal()
    assert serving.wait() == 0
    socket.create_server(("127.0.0.1", serving.port)).close()


def test_one_of_two_stopped_apis_is_replaced_and_the_port_is_shared_again(start: Start) -> None:
    serving = serve(start, "--api-processes", "2")
    first, second = apis(serving)
    first.suspend()

    serving.expect("#1 is silent, though its process lives: it is killed")
    until(lambda: len(apis(serving)) == 2)
    assert second in apis(serving)
    serving.expect("listening on", times=3)
    assert all(serving.embed("x" * length)[0] == length for length in range(1, 30))


def apis(serving: Serving) -> list[psutil.Process]:
    family = [each for each in serving.family() if each.status() != psutil.STATUS_ZOMBIE]
    found = [each for each in family if "infinity_pool.cli.api" in each.cmdline()]
    return sorted(found, key=lambda process: process.pid)


def answers(serving: Serving) -> bool:
    try:
        return bool(serving.embed())
    except OSError:
        return False
