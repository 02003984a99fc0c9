"""The page in a real browser, driven through Chromium's own debugging protocol."""

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.api.conftest import PATIENCE, Api

pytestmark = pytest.mark.browser

LUMINANCE = """(() => {
    const parts = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
    return (parts[0] + parts[1] + parts[2]) / 3;
})()"""


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


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.fail("no chromium on the PATH: install it, or leave these tests out with -m 'not browser'")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={tmp_path}",
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


@pytest.mark.parametrize(("scheme", "low", "high"), [("light", 200, 255), ("dark", 0, 50)])
async def test_both_schemes(scheme: str, low: int, high: int, tab: Tab, api: Api, tmp_path: Path) -> None:
    await tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await tab.open(api.url)

    assert low <= await tab.run(LUMINANCE) <= high
    assert await tab.run("document.querySelector('.badge.ready').textContent") == "ready"
    assert await tab.run("document.documentElement.scrollWidth <= innerWidth")
    shot = await tab.ask("Page.captureScreenshot")
    (tmp_path / f"{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
    assert tab.complaints() == []


async def test_the_copy_button(tab: Tab, api: Api) -> None:
    await tab.open(api.url)
    await tab.run("document.getElementById('copy').click()")

    assert (
        await tab.run("new Promise(done => setTimeout(() => done(document.getElementById('copy').textContent), 100))")
        == "Copied"
    )
    assert (await tab.run("getSelection().toString()")).startswith(f"curl {api.url}/v1/embeddings")
    assert tab.complaints() == []


async def test_a_narrow_screen(tab: Tab, api: Api) -> None:
    await tab.ask("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=True)
    await tab.open(api.url)

    assert await tab.run("document.documentElement.scrollWidth") == 360
