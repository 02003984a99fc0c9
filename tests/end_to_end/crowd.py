"""Clients that ask and go away before they are answered."""

import asyncio
import json
import random
from contextlib import suppress
from types import TracebackType
from typing import Self


def request(model: str, texts: list[str], url_path: str = "/v1/embeddings") -> bytes:
    """Give the bytes of a request as HTTP/1.1 has it."""
    body = json.dumps({"model": model, "input": texts}).encode()
    head = (
        f"POST {url_path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a plain connection, to say and leave out what no HTTP client would."""
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def drop_one(url: str, data: bytes, most: float, rng: random.Random) -> None:
    """Connect, send some or all of a request, and cut the connection within `most` seconds."""
    with suppress(ConnectionError):
        _, writer = await connect(url)
        cut = len(data) if rng.random() < 0.7 else rng.randint(1, len(data))  # within its head, or its body
        writer.write(data[:cut])
        await asyncio.sleep(rng.random() * most)
        writer.transport.abort() if rng.random() < 0.5 else writer.close()


class Crowd:
    """So many clients at a time that send something and go away within `most` seconds; an async context manager."""

    def __init__(self, url: str, model: str, *, clients: int, most: float = 0.05, pause: float = 0.0) -> None:
        self.dropped = 0
        self._url = url
        self._model = model
        self._clients = clients
        self._most = most
        self._pause = pause
        self._random = random.Random(clients)
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self._clients)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _client(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._pause * 2 * self._random.random())
            data = request(self._model, ["y" * self._random.randint(1, 3000)] * self._random.randint(1, 3))
            await drop_one(self._url, data, self._most, self._random)
            self.dropped += 1
