import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import InvalidInput, Unavailable
from infinity_pool.broker.messages import LANES
from tests.broker import deployments
from tests.broker.conftest import Echo

Deployment = Callable[[Path], AbstractContextManager[str]]


@pytest.mark.parametrize(
    "deployment",
    [deployments.with_password, deployments.with_tls, deployments.with_sentinel, deployments.with_cluster],
    ids=["password", "tls", "sentinel", "cluster"],
)
async def test_jobs_are_served_through(deployment: Deployment, tmp_path: Path) -> None:
    with deployment(tmp_path / "redis") as url:
        echo = Echo(url)
        await echo.start()
        tasks = [asyncio.create_task(echo.run(lane)) for lane in LANES]
        async with QueueClient(url, timeout=10) as client:
            rows = await asyncio.gather(*(client.embed("m", ["x" * n] * (1 + n % 20)) for n in range(200)))
            left = asyncio.create_task(client.embed("m", "left"))
            await asyncio.sleep(0)
            left.cancel()
            assert [int(row[0, 0]) for row in rows] == list(range(200))
            assert [model.ready for model in await client.models()] == [True]
        echo.running = False
        await asyncio.gather(*tasks)
        await echo.close()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1", "127.0.0.1:6379", "redis+sentinel://127.0.0.1", "redis+sentinel://h:port/s", ""]
)
def test_a_url_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        connect(url)
    assert caught.value.param == "redis_url"


async def test_a_wrong_password_is_unavailable_and_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with deployments.with_password(tmp_path / "redis") as url:
        async with QueueClient(url.replace("p%40ss", "wrong")) as client:
            with pytest.raises(Unavailable) as caught:
                await client.embed("m", "a")
    assert "wrong" not in str(caught.value) + caplog.text
