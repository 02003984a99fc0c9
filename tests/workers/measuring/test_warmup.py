import time
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.engines.dummy import DummyEngine
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.interface import Batch, ModelFiles, Reduce
from infinity_pool.workers.measuring.warmup import warm_up

FAMILY = Dummy(ModelFiles(Path(), {}, "dummy"))
TEXT_TOKENS = 30  # what the dummy counts in the text that is run


class Timed(DummyEngine):
    """Takes `fixed` seconds a batch, and `each` an item."""

    def __init__(self, fixed: float, each: float) -> None:
        super().__init__()
        self.fixed = fixed
        self.each = each

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        time.sleep(self.fixed + self.each * len(batch["chars"]))
        return super().run(batch, reduce)


class PackingEngine(DummyEngine):
    packed = True


def test_the_budget_of_an_engine_that_packs_counts_no_padding() -> None:
    assert warm_up(FAMILY, PackingEngine(), "64").budget.packed
    assert not warm_up(FAMILY, DummyEngine(), "64").budget.packed


@pytest.mark.parametrize(("each", "budget"), [(0.002, 16 * TEXT_TOKENS), (0.04, 256)])  # a moment's work, or a wait
def test_a_device_that_large_batches_do_not_help_gets_small_ones(each: float, budget: int) -> None:
    measured = warm_up(FAMILY, Timed(0.0, each), "auto")

    assert measured.budget.tokens == budget
    assert 0.6 * TEXT_TOKENS / each < measured.tokens_per_second <= TEXT_TOKENS / each


def test_a_device_with_a_cost_a_batch_gets_large_ones() -> None:
    measured = warm_up(FAMILY, Timed(0.02, 0.0001), "auto")

    assert measured.budget.tokens > 1000
    assert measured.budget.overhead > 1000  # 20 ms are worth 200 items


def test_a_number_is_taken_as_it_is() -> None:
    assert warm_up(FAMILY, DummyEngine(), "77").budget.tokens == 77


@pytest.mark.parametrize("word", ["", "0", "-1", "many", "1.5"])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        warm_up(FAMILY, DummyEngine(), word)
    assert caught.value.param == "batch_tokens"
