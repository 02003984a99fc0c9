"""Which lane a request goes on where its caller names none: one rule for all tasks and all ways in."""

from collections.abc import Sequence

from infinity_pool.broker.messages import Item, Lane
from infinity_pool.broker.splitting import JOB_TOKENS, Limits, cost_of

ONLINE_ITEMS = 8

_LITTLE = 0.5  # s of the workers' time


def usual_lane(items: Sequence[Item], limits: Limits, most_items: int = ONLINE_ITEMS, speed: float = 0.0) -> Lane:
    """
    Give online to a few items, up to `most_items`, and to one question with its documents while that is little work.

    Little is half a second of the workers, which run `speed` tokens a second together, and one job at least. Pairs of
    one first text are a question: no score is of use without the others, while many texts by themselves are a backfill.
    """
    if len(items) <= most_items:
        return "online"
    if most_items and _is_one_question(items) and cost_of(items, limits) <= max(JOB_TOKENS, int(_LITTLE * speed)):
        return "online"
    return "bulk"


def _is_one_question(items: Sequence[Item]) -> bool:
    first = items[0]
    if not (isinstance(first, list | tuple) and len(first) == 2 and isinstance(first[0], str)):
        return False
    return all(isinstance(item, list | tuple) and len(item) == 2 and item[0] == first[0] for item in items)
