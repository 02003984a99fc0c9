"""Signs of life through a pipe, on one event loop that plays both sides."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from infinity_pool.workers.supervision.signs import Signs, giving_signs

SILENCE = 0.6  # s
EVERY = 0.1  # s between two signs


@pytest.fixture
async def signs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Signs]:
    monkeypatch.setattr("infinity_pool.workers.supervision.signs._EVERY", EVERY)
    with closing(Signs()) as signs:
        for name, value in signs.environment.items():
            monkeypatch.setenv(name, value)
        yield signs


async def test_silence_is_told_once_the_signs_have_ended(signs: Signs) -> None:
    watching = asyncio.create_task(signs.until_silent(SILENCE))
    async with giving_signs():
        assert not set(signs.environment) & set(os.environ)  # they are not for the children of a child
        await asyncio.wait([watching], timeout=2 * SILENCE)
        assert not watching.done()
    ended = time.monotonic()
    await watching
    assert time.monotonic() - ended > 0.5 * SILENCE


async def test_a_parent_that_stood_still_gives_its_child_time(signs: Signs) -> None:
    watching = asyncio.create_task(signs.until_silent(SILENCE))
    async with giving_signs():
        await asyncio.sleep(EVERY)
        time.sleep(2 * SILENCE)  # neither of them can do anything
        await asyncio.sleep(SILENCE)
        assert not watching.done()
        watching.cancel()


async def test_a_parent_that_does_not_read_holds_up_nobody(signs: Signs, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.get_running_loop().remove_reader(signs._source)
    monkeypatch.setattr("infinity_pool.workers.supervision.signs._EVERY", 0.0)
    os.set_blocking(signs.descriptor, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(signs.descriptor, bytes(2**16))
    async with giving_signs(), asyncio.timeout(5):
        for _ in range(10):
            await asyncio.sleep(0)


async def test_without_a_parent_there_is_nothing_to_do() -> None:
    async with giving_signs():
        pass
