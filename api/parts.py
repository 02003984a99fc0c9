"""Texts and files in one request: each kind is a job of its own, and the answer has them in their order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.api.ability import check_ability
from infinity_pool.api.asking import Asked, together
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Item, Result
from infinity_pool.broker.splitting import join


class Part(NamedTuple):
    """An item, and which kind of item: "text", "image" or "audio"."""

    modality: str
    value: Item


class Work(NamedTuple):
    """What is asked of one model for parts out of the field `param`; `options` are those for a kind of them."""

    model: str
    task: str
    options: Callable[[str], dict[str, Any]]
    param: str


async def items_of(asked: Asked, work: Work, parts: Sequence[Part]) -> list[Item]:
    """Give the parts with their files decoded or fetched; raises InvalidInput, naming the part."""
    items = [part.value for part in parts]
    files = [place for place, part in enumerate(parts) if part.modality != "text"]
    if files:
        worker = await asked.worker(work.model)
        for modality in {parts[place].modality for place in files}:
            check_ability(worker, work.task, modality)
        with _naming(files):
            found = await asked.files(work.model, [str(items[place]) for place in files], work.param)
        for place, file in zip(files, found, strict=True):
            items[place] = file
    return items


async def run_parts(asked: Asked, work: Work, parts: Sequence[Part], items: Sequence[Item]) -> Result:
    """Run all parts, whose `items` are at hand, and give their outputs in order; raises as `Asked.run` does."""
    kinds: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        kinds.setdefault(part.modality, []).append(place)
    lane = asked.lane(work.model, items)

    async def run(modality: str, places: list[int]) -> Result:
        told = {} if modality == "text" else {"modality": modality}
        with _naming(places):
            chosen = [items[place] for place in places]
            return await asked.run(work.model, work.task, chosen, work.options(modality) | told, lane, work.param)

    joined = join(await together(*(run(*kind) for kind in kinds.items())))
    order = np.argsort([place for places in kinds.values() for place in places])
    rows = joined.outputs
    in_order = rows[order] if isinstance(rows, np.ndarray) else [rows[place] for place in order]
    return joined._replace(outputs=in_order)


@contextmanager
def _naming(places: Sequence[int]) -> Iterator[None]:
    """Tell the place of an item among some as its place among all."""
    try:
        yield
    except InvalidInput as error:
        if error.item is not None:
            error.item = places[error.item]
        raise
