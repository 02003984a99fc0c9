"""What ends a process in order, and what hurries it: real signals to this process."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from infinity_pool.workers.supervision.signals import on_end


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests are run under
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.01)


def listen(told: list[str]) -> None:
    on_end(lambda: told.append("first"), lambda: told.append("again"))


async def test_the_second_hurries(told: list[str]) -> None:
    listen(told)
    await send(signal.SIGTERM, signal.SIGINT, signal.SIGINT)
    assert told == ["first", "again", "again"]


async def test_a_terminal_that_closes_ends_and_never_hurries(told: list[str]) -> None:
    listen(told)
    await send(signal.SIGHUP, signal.SIGHUP)
    assert told == ["first"]
    await send(signal.SIGTERM, signal.SIGHUP)
    assert told == ["first", "again"]


async def test_what_nohup_ignores_stays_ignored(told: list[str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listen(told)
    await send(signal.SIGHUP)
    assert told == []
