"""Token ids in place of a text: they are run as they are, without special tokens or a prompt, as TEI and vLLM do it."""

from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.text.cutting import Cut


def is_ids(item: Item) -> bool:
    """Whether an item is a list or an array, which can only be token ids."""
    return isinstance(item, list | tuple | np.ndarray)


def ids_of(item: Item, index: int, vocabulary: int) -> Array:
    """Give an item's token ids, int32 [n]; raises InvalidInput, naming it, if they are none of the model's."""
    ids = item if isinstance(item, np.ndarray) else _array(item, index)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidInput(f"token ids are whole numbers, not {ids.dtype.name} of shape {ids.shape}", item=index)
    if not ids.size:
        raise InvalidInput("has no tokens", item=index)
    if ids.min() < 0 or ids.max() >= vocabulary:
        wrong = ids[(ids < 0) | (ids >= vocabulary)][0]
        raise InvalidInput(f"token id {wrong} is none of the model's, from 0 to {vocabulary - 1}", item=index)
    return ids.astype(np.int32, copy=False)


def cut_ids(ids: Array, cut: Cut) -> Array:
    """Keep the first tokens, or the last."""
    return ids[max(0, len(ids) - cut.length) :] if cut.left else ids[: cut.length]


def _array(item: list[Any] | tuple[Any, ...], index: int) -> Array:
    for one in item:
        if type(one) is not int:
            raise InvalidInput(f"must be a text or token ids, which {type(one).__name__} is not", item=index)
    try:
        return np.array(item, np.int64)
    except OverflowError as error:
        raise InvalidInput("has a token id that no model has", item=index) from error
