from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.lanes import usual_lane
from infinity_pool.broker.splitting import Limits

LIMITS = Limits(tokens_per_char=0.25, max_length=512)
LONG = "x" * 2032  # 510 tokens, with a query of one character 510 too


@pytest.mark.parametrize(
    ("items", "lane"),
    [
        (["a"], "online"),
        ([LONG] * 8, "online"),
        (["a"] * 9, "bulk"),
        ([b"image"] * 9, "bulk"),
        ([np.arange(3)] * 9, "bulk"),
        ([[1, 2]] * 9, "bulk"),
        ([["q", "a"]] * 9, "online"),
        ([["q", "a"]] * 2000, "online"),
        ([["q", "a"]] * 2100, "bulk"),
        ([["q", LONG]] * 8, "online"),
        ([["q", LONG]] * 9, "bulk"),
        ([["q" * 800, "a" * 800]] * 10, "online"),
        ([["q" * 800, "a" * 800]] * 11, "bulk"),  # both sides count
        ([["q", "a"]] * 8 + [["r", "a"]], "bulk"),
        ([["q", "a"]] * 8 + ["a"], "bulk"),
        ([["q", "a"]] * 8 + [["q", "a", "b"]], "bulk"),
    ],
)
def test_a_few_items_and_one_question_are_online(items: list[Any], lane: str) -> None:
    assert usual_lane(items, LIMITS) == lane


def test_fast_workers_take_more_documents_online() -> None:
    pairs = [["q", LONG]] * 100  # 51,000 tokens

    assert usual_lane(pairs, LIMITS, speed=100_000) == "bulk"
    assert usual_lane(pairs, LIMITS, speed=200_000) == "online"


def test_nothing_is_online_where_no_items_may_be() -> None:
    assert usual_lane(["a"], LIMITS, 0) == "bulk"
    assert usual_lane([["q", "a"]], LIMITS, 0) == "bulk"
