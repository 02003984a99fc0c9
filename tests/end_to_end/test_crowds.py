"""Many at once, many who go away, and many who take their time."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .baseline import back_to
from .conftest import Stack
from .crowd import Crowd, connect, drop_one, request
from .load import Load, at_once, embed
from .patience import PROMPT, until
from .processes import Api, Worker, until_served
from .proxy import Proxy
from .test_stopped import items_done

Start = Callable[..., Any]


async def test_a_thousand_at_once_with_default_settings(stack: Stack) -> None:
    before = stack.look()
    statuses = await at_once(*(embed(stack.url, ["x" * n]) for n in range(1, 1001)))
    assert statuses == {200: 1000}
    await back_to(before, stack.look)


async def test_two_thousand_who_go_away_leave_nothing_behind(stack: Stack) -> None:
    before, rng = stack.look(), random.Random(5)
    for _ in range(10):
        data = [request("m", ["x" * rng.randint(1, 2000)]) for _ in range(200)]
        await asyncio.gather(*(drop_one(stack.url, each, 0.1, rng) for each in data))
    statuses = await at_once(*(embed(stack.url, ["x" * n]) for n in range(1, 101)))
    assert statuses == {200: 100}
    await back_to(before, stack.look)
    assert "Traceback" not in stack.pool.output


async def test_what_nobody_waits_for_any_more_is_not_computed(stack: Stack, start: Start) -> None:
    start(Worker, stack.server.url, "wanted", model="dummy:0.02").ready()
    await until_served(stack.url, "wanted")
    texts, rng = ["x"] * 8, random.Random(0)
    began = time.monotonic()
    statuses, *_ = await asyncio.gather(
        at_once(*(embed(stack.url, texts, "wanted") for _ in range(10))),
        *(drop_one(stack.url, request("wanted", texts), 0.0, rng) for _ in range(60)),
    )
    assert statuses == {200: 10}
    assert time.monotonic() - began < 10, "the others' 10 s of work were done too"
    assert await items_done(stack, "wanted") < 280, "half of the 560 that were asked for, and 80 are wanted"


async def test_slow_clients_hold_up_nobody(stack: Stack) -> None:
    """One sends its head byte by byte, one its body, and one does not read its answer."""
    before = stack.look()
    large = request("m", ["x" * 100] * 1000)
    data = request("m", ["four"])
    async with Load(stack.urls, "m") as load:
        slow = [asyncio.create_task(trickle(stack.url, data, pause)) for pause in (0.01, 0.02)]
        deaf = [await connect(stack.url) for _ in range(20)]
        for _, writer in deaf:
            writer.write(large * 3)
        await load.more(200)
        answers = await asyncio.gather(*slow)
        for _, writer in deaf:
            writer.transport.abort()
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
    await back_to(before, stack.look)


async def trickle(url: str, data: bytes, pause: float) -> bytes:
    """Send a request byte by byte, and give the first of its answer."""
    reader, writer = await connect(url)
    for place in range(len(data)):
        writer.write(data[place : place + 1])
        await asyncio.sleep(pause)
    answer = await reader.read(2**16)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def test_nobody_gets_anothers_answer(stack: Stack, start: Start) -> None:
    """With a long wire to the queue, every command is under way while many of those who wait for it go away."""
    async with Proxy(stack.server.port) as proxy:
        worker, api = start(Worker, proxy.url, "mine"), start(Api, proxy.url)
        await until(lambda: "is ready" in worker.output and "listening" in api.output)
        api.ready()
        await until_served(api.url, "mine")
        proxy.delay = 0.05
        async with (
            Crowd(api.url, "mine", clients=250, pause=1.0) as crowd,
            Load(lambda: [api.url], "mine", clients=25, pause=0.1) as load,
        ):
            await asyncio.sleep(8)
        assert crowd.dropped > 1000
        assert load.tally.flawless(), load.tally
        assert await embed(api.url, ["after all that"], "mine") == 200
        api.end()
        worker.end()
