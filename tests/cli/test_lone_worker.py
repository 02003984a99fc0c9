"""infinity-worker by itself: one that is stuck ends, so that whatever started it starts the next."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.presence import read_models
from infinity_pool.workers.supervision.deadman import EXIT_STUCK

PATIENCE = 30.0  # s, on a busy machine
STUCK = """
import pathlib, sys
from infinity_pool.cli.worker import main
from infinity_pool.workers.engines.dummy import DummyEngine

run = DummyEngine.run

def stuck(self, batch, reduce):
    if pathlib.Path(sys.argv[0]).exists():
        {how}
    return run(self, batch, reduce)

DummyEngine.run = stuck
sys.argv = sys.argv[1:]
main()
"""
A_DEVICE = "import threading; threading.Event().wait()"
A_LOOP = "import ctypes; ctypes.PyDLL(None).sleep(3600)"  # it keeps Python's lock, so that nothing else runs


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start() as server:
        yield server


class Lone:
    """A worker of its own, `stuck` in its next batch from the call of that name on."""

    def __init__(self, folder: Path, server: EmbeddedServer, how: str) -> None:
        self._mark = folder / "stuck"
        program = STUCK.format(how=how).replace("sys.argv[0]", repr(str(self._mark)))
        options = ["--model", "dummy", "--engine", "dummy", "--redis-url", server.url, "--stall-timeout", "1"]
        options += ["--drain-timeout", "2"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "infinity-worker", *options], stderr=subprocess.PIPE, text=True
        )

    def get_stuck(self) -> None:
        self._mark.touch()

    def get_on(self) -> None:
        self._mark.unlink()

    async def end(self) -> tuple[int, str]:
        """Wait for its end; gives its exit code and what it said."""
        _, said = await asyncio.to_thread(self.process.communicate, timeout=PATIENCE)
        return self.process.returncode, said


@pytest.fixture
def start(tmp_path: Path, server: EmbeddedServer) -> Iterator[Callable[[str], Lone]]:
    started: list[Lone] = []

    def begin(how: str) -> Lone:
        started.append(Lone(tmp_path, server, how))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.communicate()


async def served(client: QueueClient) -> None:
    async with asyncio.timeout(PATIENCE):
        while not any(model.ready for model in await client.models()):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", [A_DEVICE, A_LOOP], ids=["device", "loop"])
async def test_one_that_is_stuck_ends_and_the_next_does_its_work(
    how: str, start: Callable[[str], Lone], server: EmbeddedServer
) -> None:
    worker = start(how)
    async with QueueClient(server.url, timeout=PATIENCE) as client, connect(server.url) as redis:
        await served(client)
        children = psutil.Process(worker.process.pid).children(recursive=True)
        worker.get_stuck()
        answer = asyncio.create_task(client.embed("dummy", ["x" * 7]))
        code, said = await worker.end()
        assert code == (EXIT_STUCK if how == A_DEVICE else 1)
        assert ("this worker ends" if how == A_DEVICE else "Timeout (0:00:04)") in said
        if how == A_DEVICE:
            assert [model.workers for model in await read_models(redis)] == [[]]
        assert "leaked" not in said
        assert psutil.wait_procs(children, 5)[1] == []

        worker.get_on()
        worker = start(how)
        assert (await answer).tolist() == [[7] * 13]
        worker.process.send_signal(signal.SIGTERM)
        assert (await worker.end())[0] == 0


async def test_one_that_is_told_to_stop_does_not_wait_for_a_process_that_cannot(
    start: Callable[[str], Lone], server: EmbeddedServer
) -> None:
    worker = start(A_DEVICE)
    async with QueueClient(server.url) as client:
        await served(client)
    children = psutil.Process(worker.process.pid).children(recursive=True)
    [pool] = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
    pool.suspend()
    worker.process.send_signal(signal.SIGTERM)
    code, said = await worker.end()
    assert code == 1
    assert "leaving now" in said
    assert psutil.wait_procs(children, 5)[1] == []
