"""infinity serve, with real processes and the dummy engine: how it starts, survives and ends."""

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.presence import WorkerInfo, read_models
from infinity_pool.cli.serve.ready import welcome

from .conftest import Running, Serving, free_port, gone

DUMMY = ("--model", "dummy", "--engine", "dummy")
Start = Callable[..., Serving]


@pytest.fixture
def serving(start: Start) -> Serving:
    return start(Serving, *DUMMY).ready()


def test_ctrl_c_ends_everything(serving: Serving) -> None:
    assert serving.embed("twelve chars")[0] == 12
    folder = Path(serving.queue_url().removeprefix("unix://")).parent
    family = serving.family()
    assert len(family) >= 4  # the queue, a worker, its preprocessing, an API

    serving.signal(signal.SIGINT)

    assert serving.wait() == 0
    assert gone(family, 1)
    assert not folder.exists()
    assert "Traceback" not in serving.output
    socket.create_server(("127.0.0.1", serving.port)).close()


def test_a_second_ctrl_c_does_not_wait(serving: Serving) -> None:
    family = serving.family()
    serving.children()["cli.worker"].suspend()  # it will not end by itself
    serving.signal(signal.SIGINT)
    serving.expect("stopping")
    time.sleep(0.5)
    assert serving.process.poll() is None

    began = time.monotonic()
    serving.signal(signal.SIGINT)

    assert serving.wait() == 130
    assert time.monotonic() - began < 5
    assert gone(family, 5)
    assert "Traceback" not in serving.output


@pytest.mark.parametrize("kind", ["cli.worker", "cli.api", "unixsocket"])
def test_a_killed_child_is_replaced(serving: Serving, kind: str) -> None:
    victim = serving.children()[kind]
    victim.kill()
    serving.expect("started again")

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not answers(serving):
        time.sleep(0.05)
    assert serving.embed("twelve chars")[0] == 12
    assert serving.children()[kind].pid != victim.pid


def answers(serving: Serving) -> bool:
    try:
        return bool(serving.embed())
    except OSError:
        return False


async def test_the_queue_hears_of_a_worker_death_at_once(serving: Serving) -> None:
    async with connect(serving.queue_url()) as redis:
        [model] = await read_models(redis)
        [worker] = model.workers
        psutil.Process(worker.pid).kill()
        serving.expect("started again")
        [model] = await read_models(redis)
        assert worker.id not in {other.id for other in model.workers}


def test_nothing_outlives_a_killed_supervisor(serving: Serving) -> None:
    family = serving.family()
    serving.process.kill()
    assert gone(family, 5)
    socket.create_server(("127.0.0.1", serving.port)).close()


def test_a_model_that_cannot_load_stops_everything(start: Start) -> None:
    serving = start(Serving, "--model", "dummy", "--model", "/no/such/folder", "--engine", "dummy", "--engine", "torch")
    assert serving.wait() == 1
    assert "/no/such/folder" in serving.output
    assert "Traceback" not in serving.output
    assert "started again" not in serving.output


def test_a_taken_port_is_told_before_anything_starts(start: Start) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        serving = start(Running, "main", "serve", *DUMMY, "--port", str(port))
        assert serving.wait() == 1
    assert f"error: cannot listen on 127.0.0.1:{port}" in serving.output
    assert "Traceback" not in serving.output


async def test_a_redis_that_drops_work_is_refused(start: Start) -> None:
    with EmbeddedServer.start() as server:
        async with connect(server.url) as redis:
            await redis.config_set("maxmemory-policy", "allkeys-lru")
        serving = start(Serving, *DUMMY, "--redis-url", server.url)
        assert serving.wait() == 1
    assert "set its maxmemory-policy to noeviction" in serving.output
    assert "Traceback" not in serving.output


def test_two_models_of_one_name_are_refused(start: Start) -> None:
    serving = start(Running, "main", "--model", "a/model", "--model", "./model", "--served-model-name", "same")
    assert serving.wait() == 2
    assert "2 models would be served as 'same'" in serving.output


def test_preload_only_ends_by_itself(start: Start) -> None:
    serving = start(Serving, *DUMMY, "--preload-only")
    assert serving.wait() == 0
    assert "listening" not in serving.output


def test_preload_only_tells_what_cannot_be_loaded(start: Start) -> None:
    serving = start(Serving, "--model", "/no/such/folder", "--preload-only")
    assert serving.wait() == 1
    assert "/no/such/folder" in serving.output


async def test_several_models_replicas_and_api_processes_on_a_given_queue(start: Start) -> None:
    with EmbeddedServer.start() as server:
        options = ["--model", "one", "--model", "two", "--engine", "dummy", "--replicas", "2", "--replicas", "1"]
        serving = start(Serving, *options, "--api-processes", "2", "--redis-url", server.url).ready()
        async with connect(server.url) as redis:
            counts = {model.name: len(model.workers) for model in await read_models(redis)}
        assert counts == {"one": 2, "two": 1}
        assert len([each for each in serving.family() if "infinity_pool.cli.api" in each.cmdline()]) == 2
        assert server.url not in serving.output  # it might hold a password
        assert serving.embed(model="one") == serving.embed(model="two")
        serving.signal()
        assert serving.wait() == 0
        async with connect(server.url) as redis:
            assert await read_models(redis)  # the queue is not ours to stop


def test_secrets_reach_the_children_and_no_command_line(dummy: Serving) -> None:
    assert dummy.embed(key="sesame-key")
    lines = [" ".join(each.cmdline()) for each in dummy.family()]
    assert len(lines) >= 4
    assert not any("sesame-key" in line for line in lines)
    assert "sesame-key" not in dummy.output


def test_the_command_that_is_shown_works_when_pasted(dummy: Serving) -> None:
    command = dummy.output[dummy.output.index("  curl ") : dummy.output.index("  with the key of --api-key")]
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, env={"YOUR_KEY": "sesame-key"})
    assert b'"embedding"' in done.stdout


def test_a_key_of_the_environment_is_shown_as_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINITY_API_KEY", "sesame-key")
    workers = [WorkerInfo(id="w", model="m", tasks=["embed"])]
    shown = {key: welcome("http://h:1", workers, key, "") for key in ("sesame-key", "another-key", "")}
    assert 'Bearer $INFINITY_API_KEY"' in shown["sesame-key"]
    assert 'Bearer $YOUR_KEY"' in shown["another-key"]
    assert "Bearer" not in shown[""]
    assert 'Bearer $YOUR_KEY"' in welcome("http://h:1", workers, "", "", keyed=True)
    assert "curl http://h:1/rerank " in welcome("http://h:1", [WorkerInfo(id="w", model="m", tasks=["rerank"])], "", "")
    assert not any(f"{word}-key" in text for word in ("sesame", "another") for text in shown.values())
