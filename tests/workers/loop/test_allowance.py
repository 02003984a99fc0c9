from infinity_pool.workers.loop.allowance import Allowance
from infinity_pool.workers.loop.batching import Budget


def test_it_shrinks_and_grows_back() -> None:
    allowance = Allowance(Budget(512, 10))

    allowance.was_too_much(512)
    allowance.was_too_much(200)
    assert allowance.now == Budget(100, 10)

    for _ in range(200 * 20):
        allowance.went_well()
    assert allowance.now == Budget(512, 10)


def test_it_never_allows_nothing() -> None:
    allowance = Allowance(Budget(2))

    for _ in range(5):
        allowance.was_too_much(1)

    assert allowance.now.tokens == 1
