"""infinity-worker: several of them under one command."""

import socket
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.cli.worker import command

from .conftest import PATIENCE, Running

Start = Callable[..., Running]


def ports_in_a_row(count: int) -> int:
    """Give the first of so many ports that are free."""
    while True:
        with ExitStack() as probes, socket.create_server(("", 0)) as probe:
            first: int = probe.getsockname()[1]
            try:
                for port in range(first + 1, first + count):
                    probes.enter_context(socket.create_server(("", port)))
            except OSError:
                continue
            return first


def fetch(port: int, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as response:
        return response.status, response.read().decode()


def test_each_replica_has_an_admin_port_of_its_own(start: Start) -> None:
    first = ports_in_a_row(2)
    with EmbeddedServer.start() as server:
        options = ["--model", "dummy", "--engine", "dummy", "--replicas", "2", "--admin-port", str(first)]
        workers = start(Running, "worker", *options, "--redis-url", server.url)
        workers.expect("is ready", times=2)
        for port in (first, first + 1):
            assert fetch(port, "/health") == (200, "ok")
            assert fetch(port, "/ready") == (200, "ready")
            assert 'infinity_worker_batch_items_count{model="dummy"} 0.0' in fetch(port, "/metrics")[1]
        workers.signal()
        assert workers.wait() == 0


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (("--model", "a", "--model", "b"), {}),
        (("--model-id", "a", "--model", "b"), {}),
        ((), {"INFINITY_MODEL": "a;b"}),
    ],
)
def test_several_models_are_refused(options: tuple[str, ...], variables: dict[str, str]) -> None:
    shown = CliRunner().invoke(command, options, env={"INFINITY_MODEL": None, **variables})
    assert shown.exit_code == 2
    assert "names 2: a, b" in shown.output
    assert "infinity serve" in shown.output
