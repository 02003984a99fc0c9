import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.settings import ModelSettings
from tests.workers.conftest import embed, ignore_progress


@pytest.fixture
def dummy() -> LoadedModel:
    return load_model(ModelSettings(model="anything", engine="dummy", max_length=10), "cpu", ignore_progress)


def test_each_number_is_the_texts_length(dummy: LoadedModel) -> None:
    vectors = embed(dummy.family, dummy.engine, ["", "four", "x" * 41])

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0.0] * 13, [4.0] * 13, [41.0] * 13]
    assert (dummy.family.dimensions, dummy.family_name, dummy.engine_name) == (13, "dummy", "dummy")


def test_tokens_are_four_characters_and_the_limit_counts(dummy: LoadedModel) -> None:
    rows = dummy.family.prepare(dummy.family.head("embed", {}), ["", "x" * 8, "x" * 40, "x" * 44], {})

    assert rows.lengths.tolist() == [1, 2, 10, 10]
    assert rows.truncated.tolist() == [False, False, False, True]


def test_dimensions(dummy: LoadedModel) -> None:
    assert embed(dummy.family, dummy.engine, ["abc"], dimensions=2).tolist() == [[3.0, 3.0]]
    with pytest.raises(InvalidInput, match="dimensions must be from 1 to 13"):
        dummy.family.head("embed", {"dimensions": 14})


def test_a_bad_item_is_named(dummy: LoadedModel) -> None:
    with pytest.raises(InvalidInput, match="item 1: must be a text, not NoneType"):
        dummy.family.prepare(dummy.family.head("embed", {}), ["good", None], {})
