"""The page in a real browser."""

import base64
from pathlib import Path

import pytest

from tests.api.browser import Tab
from tests.api.conftest import Api

pytestmark = pytest.mark.browser

LUMINANCE = """(() => {
    const parts = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
    return (parts[0] + parts[1] + parts[2]) / 3;
})()"""


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
