import random

import pytest

from infinity_pool.broker.messages import LANES, Lane
from infinity_pool.workers.loop.batching import BULK_SHARE, Batcher, Budget


def batches(costs: list[int], budget: Budget) -> list[list[int]]:
    batcher: Batcher[int] = Batcher(budget)
    batcher.add("online", "head", [(cost, cost) for cost in costs])
    taken = []
    while batch := batcher.take():
        taken.append(batch)
    return taken


@pytest.mark.parametrize(
    ("costs", "overhead", "expected"),
    [
        ([], 0, []),
        ([5], 0, [[5]]),
        ([99], 0, [[99]]),  # longer than the budget: alone
        ([5, 5], 0, [[5, 5]]),
        ([5, 5, 5], 0, [[5, 5], [5]]),  # the budget is in padded tokens
        ([8, 2, 8, 2], 0, [[8], [2, 2], [8]]),
        ([2, 8, 2], 0, [[2, 2], [8]]),  # the oldest first, and its nearest
        ([3, 4], 0, [[3], [4]]),  # one token in eight would be padding
        ([3, 4], 1, [[3, 4]]),  # which costs less than another batch
        ([4, 3, 2], 3, [[3, 4], [2]]),
    ],
)
def test_like_lengths_share_a_budget(costs: list[int], overhead: int, expected: list[list[int]]) -> None:
    assert batches(costs, Budget(10, overhead)) == expected


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([3, 4, 3], [[3, 3, 4]]),  # what would be padding costs nothing
        ([1, 1, 7, 9], [[1, 1, 7], [9]]),
        ([30, 1, 1], [[30], [1, 1]]),  # longer than the budget
        ([1] * 5 + [5], [[1, 1, 1, 1, 1, 5]]),
        ([1] * 9 + [7], [[1] * 9, [7]]),
        ([1] * 2 + [15] + [1], [[1] * 3, [15]]),
    ],
)
def test_packed_batches_are_as_large_as_their_tokens(costs: list[int], expected: list[list[int]]) -> None:
    assert batches(costs, Budget(10, packed=True)) == expected


def test_a_packed_batch_is_laid_out_in_bounded_room() -> None:
    taken = batches([1] * 60 + [40], Budget(100, packed=True))

    assert [len(batch) for batch in taken] == [60, 1]  # 61 items of 40 tokens are more than four times the budget


def test_nothing_is_lost_and_nothing_wasted() -> None:
    rng = random.Random(1)
    costs = [max(1, min(256, int(rng.lognormvariate(3.7, 0.9)))) for _ in range(2000)]

    taken = batches(costs, Budget(512, 18))

    assert sorted(cost for batch in taken for cost in batch) == sorted(costs)
    assert all(max(batch) * len(batch) <= 512 for batch in taken)
    padded = sum(max(batch) * len(batch) for batch in taken)
    assert 1 - sum(costs) / padded <= 0.05


def test_heads_never_mix() -> None:
    batcher: Batcher[str] = Batcher(Budget(100))
    batcher.add("online", "a", [(5, "a1")])
    batcher.add("online", "b", [(5, "b1")])
    batcher.add("online", "a", [(5, "a2")])

    assert [batcher.take(), batcher.take(), batcher.take()] == [["a1", "a2"], ["b1"], []]


def test_online_goes_first() -> None:
    batcher: Batcher[str] = Batcher(Budget(10))
    batcher.add("bulk", "head", [(8, "bulk")])
    batcher.add("online", "head", [(5, "online")])

    assert [batcher.take(), batcher.take()] == [["online"], ["bulk"]]


def test_bulk_does_not_make_an_online_batch_longer() -> None:
    batcher: Batcher[str] = Batcher(Budget(120, overhead=100))
    batcher.add("bulk", "head", [(5, "bulk")] * 3)
    batcher.add("online", "head", [(5, "online")])

    assert [batcher.take(), batcher.take()] == [["online"], ["bulk"] * 3]
    assert (len(batcher), batcher.tokens("bulk"), batcher.tokens("online")) == (0, 0, 0)


@pytest.mark.parametrize(
    ("budget", "short"),
    [
        (Budget(800), 100),
        (Budget(800, overhead=50), 200),  # or the overhead would be more than a fifth
        (Budget(800, overhead=500), 800),
        (Budget(800, overhead=50, moment=150), 150),  # though not for so long that it is felt
        (Budget(800, overhead=50, moment=1), 100),
        (Budget(4), 0),
    ],
)
def test_a_short_batch_is_small_and_worth_its_overhead(budget: Budget, short: int) -> None:
    assert budget.short == short


@pytest.mark.parametrize("short", [(), ("bulk",), ("online",), ("online", "bulk")])
def test_lanes_that_others_wait_for_have_short_batches(short: tuple[Lane, ...]) -> None:
    sizes = {}
    for lane in LANES:
        batcher: Batcher[int] = Batcher(Budget(80))
        batcher.add(lane, "head", [(5, n) for n in range(20)])
        sizes[lane] = len(batcher.take(short))
        assert len(batcher) == 20 - sizes[lane]

    assert sizes == {lane: 2 if lane in short else 16 for lane in LANES}


def test_packed_batches_too() -> None:
    batcher: Batcher[int] = Batcher(Budget(80, packed=True))
    batcher.add("bulk", "head", [(length, length) for length in (1, 2, 3, 4, 5)])

    assert batcher.take({"bulk"}) == [1, 2, 3, 4]


def test_what_goes_ahead_is_next_with_its_nearest() -> None:
    batcher: Batcher[str] = Batcher(Budget(20))
    batcher.add("online", "head", [(5, "old"), (9, "long"), (9, "too")])
    batcher.add("online", "another", [(5, "another")])
    batcher.add("online", "another", [(9, "first")], ahead=True)
    batcher.add("online", "head", [(9, "second")], ahead=True)

    taken = [batcher.take() for _ in range(5)]

    assert taken[0] == ["first"]
    assert sorted(taken[1]) in (["long", "second"], ["second", "too"])
    assert taken[2] == ["old"]
    assert sorted(value for batch in taken[3:] for value in batch) == sorted({"another", "long", "too"} - {*taken[1]})
    assert len(batcher) == 0


def test_what_goes_ahead_without_end_leaves_half_to_others() -> None:
    batcher: Batcher[str] = Batcher(Budget(tokens=20))
    batcher.add("online", "head", [(5, "waits")] * 500)
    served = []
    for _ in range(100):
        batcher.add("online", "head", [(5, "ahead")] * 4, ahead=True)
        served += batcher.take()
    assert served.count("waits") == pytest.approx(200, abs=8)


def test_a_little_goes_ahead_every_time() -> None:
    batcher: Batcher[str] = Batcher(Budget(tokens=20))
    batcher.add("online", "head", [(5, "waits")] * 500)
    for _ in range(50):
        batcher.add("online", "head", [(5, "ahead")], ahead=True)
        assert "ahead" in batcher.take()


def test_those_that_go_ahead_keep_their_order() -> None:
    batcher: Batcher[int] = Batcher(Budget(15, packed=True))
    for number in range(6):
        batcher.add("online", "head", [(15, number)], ahead=number % 2 == 1)

    assert [batcher.take()[0] for _ in range(6)] == [1, 3, 0, 5, 2, 4]  # and leave others half


@pytest.mark.parametrize("online_length", [1, 7, 16, 64])
def test_bulk_gets_a_fifth_while_both_wait(online_length: int) -> None:
    batcher: Batcher[str] = Batcher(Budget(64))
    spent = {"online": 0, "bulk": 0}
    for _ in range(500):
        batcher.add("online", "head", [(online_length, "online")] * (128 // online_length))
        batcher.add("bulk", "head", [(16, "bulk")] * 4)
        for lane in batcher.take():
            spent[lane] += online_length if lane == "online" else 16

    share = spent["bulk"] / sum(spent.values())

    assert BULK_SHARE * 0.95 <= share <= BULK_SHARE * 1.1


def test_a_long_item_is_not_starved_by_short_ones() -> None:
    batcher: Batcher[str] = Batcher(Budget(32))
    batcher.add("online", "head", [(30, "long")])
    turns = 0
    while True:
        batcher.add("online", "head", [(2, "short")] * 4)
        turns += 1
        if "long" in batcher.take():
            break

    assert turns == 1


def test_a_large_backlog_is_batched_fast() -> None:
    batcher: Batcher[int] = Batcher(Budget(512, 16))
    rng = random.Random(2)
    batcher.add("bulk", "head", [(rng.randint(3, 256), n) for n in range(20_000)])

    taken = 0
    while batch := batcher.take():
        taken += len(batch)

    assert taken == 20_000
    assert len(batcher) == batcher.tokens("bulk") == 0
