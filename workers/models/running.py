"""Running some items through a model that is loaded, without a queue."""

from collections.abc import Sequence
from typing import Any

from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import Engine, Family


def run_items(
    family: Family, engine: Engine, task: str, items: Sequence[Item], options: dict[str, Any]
) -> Array | list[Any]:
    """Do all that a worker does with one job; raises InvalidInput, naming the option or item."""
    head = family.head(task, options)
    batch = family.collate([family.prepare(head, items, options)])
    return family.finish(head, family.split(engine.run(batch, family.reduce), batch), options)
