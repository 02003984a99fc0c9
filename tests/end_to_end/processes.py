"""The project's own processes, each found by its part: started as a user does, and broken as only an enemy would."""

from collections.abc import Iterable
from typing import Any

import aiohttp
import psutil

from tests.cli.conftest import PATIENCE, Running, Serving

from .patience import until


class Worker(Running):
    """`infinity-worker` with the dummy engine; `model` may be `dummy:0.05` for 50 ms an item."""

    def __init__(self, redis_url: str, name: str, *options: str, model: str = "dummy", **environment: str) -> None:
        what = ["--model", model, "--engine", "dummy", "--served-model-name", name]
        super().__init__("worker", *what, "--redis-url", redis_url, *options, **environment)

    def ready(self) -> "Worker":
        """Wait until it takes jobs."""
        self.expect(" is ready: ")
        return self


class Api(Running):
    """`infinity-api` on a port of its own."""

    def __init__(self, redis_url: str, *options: str, **environment: str) -> None:
        super().__init__("api", "--port", "0", "--redis-url", redis_url, *options, **environment)
        self.url = ""

    def ready(self) -> "Api":
        """Wait until its port is open."""
        self.expect("listening on ")
        self.url = self.output.partition("listening on ")[2].split()[0]
        return self


class Pool(Serving):
    """`infinity serve` with the dummy engine, and everything below it."""

    def parts(self) -> dict[str, list[psutil.Process]]:
        """Give all processes by their part: supervisor, api, worker, preprocess, server."""
        found: dict[str, list[psutil.Process]] = {"supervisor": [psutil.Process(self.process.pid)]}
        for each in self.family():
            found.setdefault(part_of(each), []).append(each)
        return found

    def workers(self, name: str) -> list[psutil.Process]:
        """Give the workers of one model."""
        return [each for each in self.parts()["worker"] if each.environ()["INFINITY_SERVED_MODEL_NAME"] == name]

    def pids(self) -> dict[str, list[int]]:
        """Give the process ids by part, to see that nothing was started again."""
        return {part: sorted(each.pid for each in group) for part, group in self.parts().items()}


def part_of(process: psutil.Process) -> str:
    """Say what a process is by its command line."""
    words = " ".join(process.cmdline())
    for part, mark in _MARKS.items():
        if mark in words:
            return part
    return words


_MARKS = {
    "worker": "infinity_pool.cli.worker",
    "api": "infinity_pool.cli.api",
    "preprocess": "spawn_main",
    "tracker": "resource_tracker",
    "server": "unixsocket",
}


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Give those that have not ended; one that nobody has waited for yet has."""
    return [each for each in processes if _is_alive(each)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until_served(url: str, model: str, workers: int = 1, patience: float = PATIENCE) -> float:
    """Wait until an API knows so many ready workers of a model; gives the seconds it took."""
    async with aiohttp.ClientSession(url) as session:

        async def served() -> bool:
            try:
                async with session.get(f"/v1/models/{model}") as response:
                    found: dict[str, Any] = await response.json()
            except aiohttp.ClientError:
                return False
            ready = [worker["state"] for worker in found.get("workers", [])].count("ready")
            return found.get("id") == model and ready >= workers

        return await until(served, patience, f"{workers} workers of {model} are ready")
