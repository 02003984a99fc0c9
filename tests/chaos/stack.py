"""What is broken: a queue, two workers and two API replicas, each of which can be lost and put back alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.cli.conftest import Running
from tests.end_to_end.baseline import Baseline, look
from tests.end_to_end.processes import Api, Worker, until_served
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.redis_server import RedisServer

MODEL = "m"
SLOTS = (0, 1)
API_OPTIONS = ("--timeout", "30", "--shutdown-delay", "1")


class Stack:
    """
    Two slots for workers and two for APIs; who is in the second of each reaches the queue through `proxy`.

    `killed` has the URLs of APIs that were killed: whoever was talking to one had a connection broken. `leaving` has
    those that were told to stop, to which a balancer sends nothing new.
    """

    def __init__(self, folder: Path, proxy: Proxy, server: RedisServer) -> None:
        self.server = server
        self.proxy = proxy
        self.workers: dict[int, Worker] = {}
        self.apis: dict[int, Api] = {}
        self.killed: set[str] = set()
        self.leaving: set[str] = set()
        self._folder = folder
        self._ended: list[Running] = []

    async def start_worker(self, slot: int) -> Worker:
        """Put a worker into a slot, and wait until it is ready."""
        worker = Worker(self._queue(slot), MODEL, model="dummy:0.001")
        self._replace(self.workers.pop(slot, None))
        await asyncio.to_thread(worker.ready)
        self.workers[slot] = worker
        return worker

    async def start_api(self, slot: int) -> Api:
        """Put an API into a slot, and wait until it is ready."""
        api = Api(self._queue(slot), *API_OPTIONS)
        self._replace(self.apis.pop(slot, None))
        await asyncio.to_thread(api.ready)
        await until_served(api.url, MODEL, patience=60)
        self.apis[slot] = api
        return api

    def urls(self) -> list[str]:
        """Give the URLs of the APIs to which requests may be sent."""
        return [api.url for api in self.apis.values() if api.url not in self.killed | self.leaving]

    def look(self) -> Baseline:
        """Look at the queue and at all processes."""
        return look(self.server, self._processes(), self.urls())

    async def close(self) -> None:
        """End everything, and keep the logs."""
        for each in (*self.workers.values(), *self.apis.values()):
            await asyncio.to_thread(each.end)
            self._ended.append(each)
        for number, each in enumerate(self._ended):
            name = "worker" if isinstance(each, Worker) else "api"
            (self._folder / f"{name}-{number}.log").write_text(each.output)
        self.server.close()

    def _replace(self, old: Running | None) -> None:
        if old is not None:
            self._ended.append(old)

    def _processes(self) -> Iterator[psutil.Process]:
        for each in (*self.workers.values(), *self.apis.values()):
            process = psutil.Process(each.process.pid)
            yield process
            yield from process.children(recursive=True)

    def _queue(self, slot: int) -> str:
        return self.proxy.url if slot else self.server.url
