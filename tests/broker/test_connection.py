import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from infinity_pool.broker import connection
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.connection import Backoff, connect
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


class Clock:
    """A monotonic clock that the test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection, "time", clock)
    monkeypatch.setattr(connection, "_outage", connection._Outage())
    return clock


def test_an_outage_is_told_once_now_and_then_and_when_it_is_over(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    loops = [Backoff(), Backoff(), Backoff()]
    for tick in range(200):
        clock.now = tick / 2
        for number in range(len(loops)):
            loops[number].failed("take jobs", OSError("refused"))
    loops[0].reset()
    loops[1].reset()
    loops[1].reset()
    assert len(caplog.messages) == 4
    loops.pop()  # it ends with its client, in the midst of it
    assert caplog.messages == [
        "trouble with the queue: cannot take jobs: refused",
        *(
            f"the trouble with the queue goes on after {seconds} s, {tries} failed tries: cannot take jobs: refused"
            for seconds, tries in ((30, 181), (60, 361), (90, 541))
        ),
    ]
    loops[0].failed("take jobs", OSError("again"))
    clock.now += 1
    loops[0].reset()
    assert caplog.messages[4:] == [
        "trouble with the queue: cannot take jobs: again",
        "the queue works again after 1.0 s, 1 failed try",
    ]


async def test_what_goes_on_through_an_outage_says_so_twice(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([OSError("refused"), OSError("refused"), "an answer"])

    async def ask() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return str(answer)

    assert await connection.through_outages(ask) == "an answer"
    assert caplog.messages == [
        "trouble with the queue: cannot go on: refused",
        "the queue works again after 0.0 s, 2 failed tries",
    ]
