"""A real browser, driven through Chromium's own debugging protocol."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PATIENCE = 30.0  # s, for a browser on a busy machine


class Tab:
    """A page in a browser; `events` are what the browser told unasked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = socket
        self._numbers = itertools.count(1)

    async def ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return (await self._until(lambda message: message.get("id") == number))["result"]

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.ask(f"{domain}.enable")
        await self.ask("Page.navigate", url=url)
        await self._until(lambda message: message.get("method") == "Page.loadEventFired")

    async def run(self, script: str) -> Any:
        answer = await self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[dict[str, Any]]:
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for event in self.events if event["method"] in kinds]

    async def _until(self, wanted: Any) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                message: dict[str, Any] = await self._socket.receive_json()
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message


@asynccontextmanager
async def browser_tab(profile: Path) -> AsyncIterator[Tab]:
    """Open a browser and give its one tab."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.fail("no chromium on the PATH: install it, or leave these tests out with -m 'not browser'")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]
    process = await asyncio.create_subprocess_exec(
        browser, *options, "about:blank", stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stderr
    async with asyncio.timeout(PATIENCE):
        while b"DevTools listening on" not in (line := await process.stderr.readline()):
            assert line, "the browser ended"
    port = line.decode().split("ws://127.0.0.1:")[1].split("/")[0]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/json/list") as response:
            where = next(page for page in await response.json() if page["type"] == "page")["webSocketDebuggerUrl"]
        async with session.ws_connect(where, max_msg_size=2**26) as socket:
            yield Tab(socket)
    process.terminate()
    await process.communicate()
