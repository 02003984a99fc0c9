"""Being told to stop: what is in hand is finished, what is not is left to others, and nothing stays behind."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from infinity_pool.broker import keys

from .baseline import back_to
from .conftest import Stack
from .load import Load, at_once, embed
from .patience import until
from .processes import Api, Pool, Worker, alive, until_served

Start = Callable[..., Any]


async def test_scaling_down_costs_no_caller_anything(stack: Stack, start: Start) -> None:
    workers = [start(Worker, stack.server.url, "shrinking", model="dummy:0.02") for _ in range(2)]
    await until_served(stack.url, "shrinking", 2)
    stream = keys.jobs("shrinking", "online")
    calls = asyncio.create_task(at_once(*(embed(stack.url, ["x" * n] * 4, "shrinking") for n in range(1, 21))))
    await until(lambda: stack.server.commands.xlen(stream) > 10)

    workers[0].process.terminate()

    assert workers[0].wait() == 0
    assert await calls == {200: 20}
    there = len(stack.server.commands.xinfo_consumers(stream, keys.GROUP))  # the other is there once it took a job
    assert there <= 1
    await until(lambda: stack.server.commands.xlen(stream) == 0)
    assert "took over" not in workers[1].output


async def test_an_api_that_is_told_to_stop_answers_what_is_in_hand(stack: Stack, start: Start) -> None:
    before = stack.look()
    api = start(Api, stack.server.url).ready()
    await until_served(api.url, "slow")
    calls = asyncio.create_task(at_once(*(embed(api.url, ["x" * n], "slow") for n in range(1, 51))))
    await until(lambda: stack.server.commands.xlen(keys.jobs("slow", "online")) > 30)

    api.process.terminate()

    assert api.wait() == 0
    statuses = await calls
    assert statuses.keys() <= {200, 503}
    assert statuses[200]
    assert "Traceback" not in api.output
    await back_to(before, stack.look)


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_under_load(start: Start, times: int) -> None:
    """Once, all that is in hand is answered; twice, it is not waited for."""
    pool = start(Pool, "--model", "dummy:0.01", "--engine", "dummy", "--served-model-name", "m").ready()
    family = pool.family()
    async with Load(lambda: [pool.url] if pool.process.poll() is None else [], "m", patience=20) as load:
        await load.more(20)
        pool.signal(signal.SIGINT)
        if times == 2:
            pool.expect("stopping")
            pool.signal(signal.SIGINT)
        code = await asyncio.to_thread(pool.wait)
        await until(lambda: not alive(family), 5)
    assert code == (0 if times == 1 else 130)
    assert not load.tally.lost + load.tally.wrong, load.tally
    assert set(load.tally.refused) <= {503}, load.tally
    assert "Traceback" not in pool.output, pool.output
    if times == 1:
        cut = [text for text in load.tally.complaints if "broken" in text and "ConnectorError" not in text]
        assert not cut, cut
