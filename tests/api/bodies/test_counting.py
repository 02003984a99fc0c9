"""What a large body holds is counted right wherever its slices end, and others have their turn meanwhile."""

import json
import random

import pytest

from infinity_pool.api.bodies import counting
from infinity_pool.api.bodies.counting import check_values
from infinity_pool.broker.errors import InvalidInput
from tests.api.turns import another_task


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have slices and limits that a test fills."""
    monkeypatch.setattr(counting, "LARGE", 200)
    monkeypatch.setattr(counting, "_STRINGS", 20)


TEXTS = ["a" * 5_000, '"' * 500, "\\" * 501, '\\"' * 400, "\n\t é日本" * 100, "[1,2,{}]" * 300, ""]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
async def test_text_is_let_in_wherever_slices_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_SLICE", size)
    rng = random.Random(size)
    for ascii_only in (True, False):
        texts = [rng.choice(TEXTS) for _ in range(10)]
        await check_values(json.dumps({"model": "m", "input": texts}, ensure_ascii=ascii_only).encode())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("bare", ["1," * 150, "[]," * 100, " " * 300, '"a",' * 60, '"\\"",' * 60, '"\\\\",' * 60])
async def test_many_values_are_not(size: int, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_SLICE", size)
    for text in TEXTS:
        body = f'{{"input":{json.dumps(text)},"more":[{bare}1]}}'.encode()
        with pytest.raises(InvalidInput, match="too many values"):
            await check_values(body)


async def test_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_task() as turns:
        await check_values(json.dumps({"input": "say so\n" * 150_000}).encode())
    assert turns.count >= 15
