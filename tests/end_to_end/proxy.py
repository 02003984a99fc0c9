"""A wire between a process and the queue that is long, and that can be cut."""

import asyncio
from types import TracebackType
from typing import Self

_CHUNK = 2**16


class Proxy:
    """
    Passes bytes between those who connect and a port, each `delay` seconds late in either direction.

    The delay is that of a long wire: what is sent meanwhile is on its way too. An async context manager.
    """

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.delay = delay
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port to connect to."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL of the queue behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Cut all connections that are open, wherever in a message they are."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, back), (there, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass one direction on, in order, until either side closes."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(line, sink))
        try:
            while data := await source.read(_CHUNK):
                line.put_nowait((asyncio.get_running_loop().time() + self.delay, data))
        except ConnectionError:
            sink.transport.abort()
        line.put_nowait((0.0, b""))
        await sending

    async def _send(self, line: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while (item := await line.get())[1]:
            when, data = item
            await asyncio.sleep(max(0.0, when - clock()))
            sink.write(data)
        sink.close()
        self._writers.discard(sink)
