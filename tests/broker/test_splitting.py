from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.messages import Result, Times
from infinity_pool.broker.splitting import JOB_BYTES, JOB_ITEMS, JOB_TOKENS, Limits, join, split


@pytest.mark.parametrize(
    ("items", "sizes"),
    [
        (["a"], [1]),
        (["a"] * JOB_ITEMS, [JOB_ITEMS]),
        (["a"] * (JOB_ITEMS + 1), [JOB_ITEMS, 1]),
        (["a" * JOB_TOKENS * 4, "b"], [1, 1]),
        ([b"x" * JOB_BYTES, b"y"], [1, 1]),
        ([["query", "document"]] * 3, [3]),
    ],
)
def test_parts_are_bounded_and_in_order(items: list[object], sizes: list[int]) -> None:
    parts = list(split(items, Limits()))

    assert [len(part.items) for part in parts] == sizes
    assert [item for part in parts for item in part.items] == items


def test_an_estimate_is_no_more_than_the_model_reads() -> None:
    [part] = split(["a" * 10_000, "a" * 10], Limits(tokens_per_char=0.5, max_length=128))

    assert part.cost == 128 + 7


def test_what_no_worker_would_read_is_not_sent() -> None:
    [part] = split(["abcdef", "ab", ["abcdef", "x"], b"abcdef"], Limits(max_chars=4))

    assert part.items == ["abcd", "ab", ["abcd", "x"], b"abcdef"]


def test_the_end_of_a_text_is_sent_where_it_is_kept_and_the_beginning_of_a_query() -> None:
    [part] = split(["abcdef", ["abcdef", "uvwxyz"], [1, 2, 3, 4, 5]], Limits(max_chars=4), keep_end=True)

    assert part.items == ["cdef", ["abcd", "wxyz"], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("kind", [list, lambda ids: np.array(ids, np.int32)])
def test_token_ids_cost_what_they_are(kind: Callable[[list[int]], Any]) -> None:
    parts = list(split([kind([7] * 1000)] * 8, Limits(max_length=2000)))

    assert [(len(part.items), part.cost) for part in parts] == [(4, 4000), (4, 4000)]
    assert [part.cost for part in split([kind([7] * 1000)], Limits(max_length=128))] == [128]


def test_results_are_put_together_in_order() -> None:
    parts = [Result(str(n), np.full((n, 2), n, np.float32), 10 * n, n) for n in (1, 2)]

    whole = join(parts)

    assert isinstance(whole.outputs, np.ndarray)
    assert whole.outputs.tolist() == [[1, 1], [2, 2], [2, 2]]
    assert (whole.tokens, whole.truncated) == (30, 3)


def test_times_are_those_of_the_slowest_part() -> None:
    times = [Times(1.0, 2.0, 3.0), None, Times(0.0, 1.0, 9.0)]

    assert join([Result("1", [[1.0]], 1, 0, one) for one in times]).times == times[2]
    assert join([Result("1", [[1.0]], 1), Result("2", [[1.0]], 1)]).times is None


def test_outputs_that_are_lists_are_put_together_too() -> None:
    assert join([Result("1", [[1.0]], 1), Result("2", np.zeros((1, 2)), 1)]).outputs[0] == [1.0]


def test_few_media_share_a_job() -> None:
    parts = list(split([b"image"] * 9, Limits()))

    assert [len(part.items) for part in parts] == [4, 4, 1]
