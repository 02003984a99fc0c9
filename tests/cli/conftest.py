"""`infinity` as a person starts it: a process with children, whose output is read as it comes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

PATIENCE = 60.0  # s, for a process to start or stop on a busy machine


class Running:
    """A console script that runs, in a process group of its own."""

    def __init__(self, *command: str, **environment: str) -> None:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("INFINITY_")}
        self.output = ""
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"infinity_pool.cli.{command[0]}", *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**ours, "PYTHONUNBUFFERED": "1", **environment},
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.output += line
                self._news.notify_all()

    def expect(self, text: str, *, times: int = 1) -> None:
        """Wait until the output holds a text, so many times."""
        with self._news:
            found = self._news.wait_for(lambda: self.output.count(text) >= times, PATIENCE)
        assert found, self.output

    def children(self) -> dict[str, psutil.Process]:
        """Give the processes directly below, by what they are."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            words = " ".join(child.cmdline())
            kind = next((name for name in ("cli.worker", "cli.api", "unixsocket") if name in words), words)
            found[kind] = child
        return found

    def family(self) -> list[psutil.Process]:
        """Give all processes below."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        """Signal the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for the end and give the exit code."""
        code = self.process.wait(patience)
        self._reader.join(patience)
        assert self.process.stdout
        self.process.stdout.close()
        return code

    def end(self) -> None:
        """Leave nothing behind, whatever a test has done."""
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            for each in family:
                if each.is_running():
                    each.kill()
        self.wait()


class Serving(Running):
    """`infinity serve`, on a free port."""

    def __init__(self, *options: str, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__("main", "serve", "--port", str(self.port), *options, **environment)

    def ready(self) -> "Serving":
        """Wait until everything can answer."""
        self.expect("Ctrl-C stops everything.")
        return self

    def queue_url(self) -> str:
        """Give the URL of the queue, as it was printed."""
        return next(word for word in self.output.split() if word.startswith("unix://"))

    def embed(self, text: str = "Hello", model: str = "dummy", key: str = "") -> list[float]:
        """Embed a text over HTTP."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        body = json.dumps({"model": model, "input": text}).encode()
        request = urllib.request.Request(f"{self.url}/v1/embeddings", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            vector: list[float] = json.load(response)["data"][0]["embedding"]
        return vector


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Say whether all of some processes have ended within so many seconds; a zombie has."""
    _, alive = psutil.wait_procs(processes, seconds)
    return all(each.status() == psutil.STATUS_ZOMBIE for each in alive if each.is_running())


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start things that are ended with the test, if they have not ended before."""
    started: list[Running] = []

    def begin(kind: type[Running], *options: str, **environment: str) -> Running:
        started.append(kind(*options, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.end()


@pytest.fixture(scope="module")
def dummy() -> Iterator[Serving]:
    """A machine that serves the dummy engine, for tests that only look at it."""
    serving = Serving("--model", "dummy", "--engine", "dummy", "--api-key", "sesame-key")
    yield serving.ready()
    serving.end()
