import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infinity_pool.workers.interface import Rows


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_selected_rows_are_those_of_the_items_in_that_order(lengths: list[int], data: st.DataObject) -> None:
    ids = [np.arange(length) + 100 * place for place, length in enumerate(lengths)]
    rows = Rows(
        np.array(lengths, np.int32),
        {"ids": np.concatenate(ids)},
        {"place": np.arange(len(lengths))},
        np.arange(len(lengths)) % 2 == 0,
    )
    chosen = data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1))

    picked = rows.select(chosen)

    assert picked.lengths.tolist() == [lengths[place] for place in chosen]
    assert picked.ragged["ids"].tolist() == np.concatenate([ids[place] for place in chosen]).tolist()
    assert picked.fixed["place"].tolist() == chosen
    assert picked.truncated.tolist() == [place % 2 == 0 for place in chosen]
