from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.consumer import Delivery
from infinity_pool.broker.messages import Job
from infinity_pool.workers.loop.held import Held
from infinity_pool.workers.loop.preparing import Request
from infinity_pool.workers.loop.slices import is_small, slices


def held_of(items: list[Any]) -> Held:
    job = Job("id", "embed", items, {}, "replies", "bulk", 1, None)
    return Held(Delivery(b"1-1", "bulk", job, len(items), 1, 1, 0.0, None), job)


def texts(*texts: object) -> Request:
    return Request("embed", list(texts), {})


@pytest.mark.parametrize(
    ("requests", "here"),
    [
        ([texts("a" * 8)], True),
        ([texts("a" * 4096)], True),
        ([texts("a"), texts("b", "c"), texts("d")], True),
        ([texts(*"abcdefgh")] * 4, True),
        ([texts("a" * 4097)], False),
        ([texts(*"a" * 33)], False),
        ([texts("a"), texts(*"a" * 32)], False),
        ([texts("a")] * 33, False),
        ([texts(b"an image")], False),
        ([texts(7)], False),
        ([texts([1] * 1024)], True),
        ([texts(np.ones(1025, np.int32))], False),
        ([texts(["a query", "a document"])], True),
        ([texts(["a query", "a" * 4096])], False),
    ],
)
def test_only_a_few_short_texts_are_prepared_here(requests: list[Request], here: bool) -> None:
    assert is_small(requests) is here


@pytest.mark.parametrize(
    ("jobs", "parts"),
    [
        ([], []),
        ([["a"]], [1]),
        ([["a" * 65_536], ["a"]], [1, 1]),
        ([["a" * 30_000, "b" * 2_768]] * 5, [2, 2, 1]),
        ([["q" * 16_384, "a" * 16_384]] * 3, [2, 1]),
        ([[["q" * 16_384, "a" * 16_384]]] * 3, [2, 1]),
        ([["a"], ["b" * 10**6], ["c"]], [1, 1, 1]),
        ([[b"image"], [b"image"], ["a"], ["b"]], [1, 1, 2]),
        ([[np.ones(8192, np.int32)]] * 3, [2, 1]),
        ([[[1] * 8192]] * 3, [2, 1]),
        ([["a"] * 64] * 100, [100]),
    ],
)
def test_a_take_in_parts(jobs: list[list[Any]], parts: list[int]) -> None:
    held = [held_of(items) for items in jobs]

    cut = [*slices(held)]

    assert [len(part) for part in cut] == parts
    assert [one for part in cut for one in part] == held
