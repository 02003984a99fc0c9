"""What stands before API replicas: it looks whether each is ready, and sends requests only to those."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import aiohttp

from .patience import PATIENCE, until

LOOK = 0.1
"""Seconds between two looks at a replica."""


class Balancer:
    """Keeps the list of the replicas that are ready for a model; an async context manager."""

    def __init__(self, replicas: Callable[[], Sequence[str]], model: str) -> None:
        self._replicas = replicas
        self._model = model
        self._ready: list[str] = []
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3))
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await self._looking
        await self._session.close()

    def ready(self) -> list[str]:
        """Give the URLs of the replicas that said so at the last look."""
        return [url for url in self._ready if url in self._replicas()]

    async def until(self, *urls: str) -> None:
        """Wait until just these are ready."""
        await until(lambda: set(self._ready) == set(urls), PATIENCE, f"{urls} are ready, and no others")

    async def _look(self) -> None:
        while not self._stopping.is_set():
            urls = list(self._replicas())
            answers = await asyncio.gather(*(self._is_ready(url) for url in urls))
            self._ready = [url for url, good in zip(urls, answers, strict=True) if good]
            await asyncio.sleep(LOOK)

    async def _is_ready(self, url: str) -> bool:
        try:
            async with self._session.get(f"{url}/ready", params={"model": self._model}) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False
