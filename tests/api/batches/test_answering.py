"""How the lines of a batch are begun."""

import asyncio
import itertools
import json
import time
from typing import Any, NoReturn

from infinity_pool.api.batches.answering import Answering
from infinity_pool.broker.callers import Caller


class Stop(Exception):
    """A line has begun, which is all that is wanted of it."""


class Inside:
    """Counts the lines that have begun."""

    def __init__(self) -> None:
        self.begun = 0

    async def request(self, *about: Any) -> NoReturn:
        self.begun += 1
        raise Stop


async def test_others_have_their_turn_between_two_lines() -> None:
    inside: Any = Inside()
    answering = Answering(inside, "/embeddings", lambda: Caller(name="a"), time.time() + 60)
    line = json.dumps({"custom_id": "a", "body": {}}).encode()
    lines = asyncio.gather(*(answering.answer(line) for _ in range(50)), return_exceptions=True)
    seen = [0]
    while not lines.done():
        seen.append(inside.begun)
        await asyncio.sleep(0)
    assert max(later - sooner for sooner, later in itertools.pairwise(seen)) == 1
    assert inside.begun == 50
    assert {type(each) for each in await lines} == {Stop}
