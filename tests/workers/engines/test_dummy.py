"""The dummy engine's time: what overload is measured with."""

import time

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.settings import ModelSettings
from tests.workers.conftest import embed, ignore_progress


def load(spec: str) -> LoadedModel:
    return load_model(ModelSettings(model=spec, engine="dummy"), "cpu", ignore_progress)


@pytest.mark.parametrize(("spec", "items", "least"), [("dummy:0.02", 5, 0.1), ("dummy:0", 50, 0.0), ("dummy", 50, 0.0)])
def test_a_batch_takes_the_time_of_its_items(spec: str, items: int, least: float) -> None:
    dummy = load(spec)
    started = time.perf_counter()
    assert embed(dummy.family, dummy.engine, ["four"] * items).tolist() == [[4.0] * 13] * items
    assert least <= time.perf_counter() - started < least + 0.2


@pytest.mark.parametrize("spec", ["dummy:", "dummy:fast", "dummy:-1", "dummy:nan", "dummy:inf"])
def test_a_time_that_is_none(spec: str) -> None:
    with pytest.raises(InvalidInput, match=f"model '{spec}': after dummy: come the seconds"):
        load(spec)
