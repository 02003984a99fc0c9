"""A queue that can be broken: a real server of one's own, on a port that it keeps when it is started again."""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import redis

from infinity_pool.broker.embedded import server_binary
from tests.broker.deployments import await_open
from tests.cli.conftest import free_port


class RedisServer:
    """
    A server process; killed or stopped, it is started again with `start`.

    With `durable` it keeps its data on disk and comes back with them, unless it is told to forget them; else it comes
    back empty. `ask` and `commands` go to it directly, whatever else is put between it and others.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.commands = redis.Redis(port=self.port, client_name="test")
        self._folder = folder
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        aof = ["--appendonly", "yes", "--appendfsync", "always"] if self._durable else ["--appendonly", "no"]
        command = [server_binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [*command, *aof, "--save", "", "--maxmemory-policy", "noeviction"], stdout=subprocess.DEVNULL
        )
        await_open(self.port)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it at once, or as `how` does, and wait for that."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait()
        self._process = None

    def forget(self) -> None:
        """Lose what it keeps on disk; while it does not run."""
        shutil.rmtree(self._folder / "appendonlydir", ignore_errors=True)

    def freeze(self) -> None:
        """Have it answer nothing, with all connections open."""
        self.process.suspend()

    def thaw(self) -> None:
        """Have it go on."""
        self.process.resume()

    def close(self) -> None:
        """End it for good."""
        if self._process:
            self.thaw()
        self.kill()
        self.commands.close()

    def ask(self, *parts: Any) -> Any:
        """Send one raw command."""
        return self.commands.execute_command(*parts)  # type: ignore[no-untyped-call] # redis-py leaves it untyped

    def clients(self) -> list[dict[str, str]]:
        """Give the open connections that are not the test's own."""
        return [client for client in self.commands.client_list() if client["name"] != "test"]

    @property
    def process(self) -> psutil.Process:
        """The process as it is now."""
        assert self._process
        return psutil.Process(self._process.pid)
