"""What of a take is prepared at a time, so that online work never waits for more than that of a backfill."""

from collections.abc import Iterator, Sequence

from infinity_pool.broker.messages import Item
from infinity_pool.broker.splitting import is_ids
from infinity_pool.workers.loop.held import Held
from infinity_pool.workers.loop.preparing import Request

_FEW_ITEMS = 32
_FEW_CHARS = 4096
_MANY_CHARS = 65_536
_CHARS_OF_AN_ID = 4


def slices(jobs: Sequence[Held]) -> Iterator[list[Held]]:
    """
    Cut a take, in order, into parts of _MANY_CHARS at most, some 50 ms of a tokenizer's work, or of one job.

    Images and sounds are jobs by themselves, since a large one may take a second.
    """
    part: list[Held] = []
    chars = 0
    for held in jobs:
        more = sum(map(_chars, held.job.items))
        if part and chars + more > _MANY_CHARS:
            yield part
            part, chars = [], 0
        part.append(held)
        chars += more
    if part:
        yield part


def is_small(requests: list[Request]) -> bool:
    """Whether these are so few and short texts that tokenizing them takes some tens of microseconds."""
    items = [item for request in requests[:_FEW_ITEMS] for item in request.items[:_FEW_ITEMS]]
    few = 0 < len(items) == sum(len(request.items) for request in requests) <= _FEW_ITEMS
    return few and sum(map(_chars, items)) <= _FEW_CHARS


def _chars(item: Item) -> int:
    """Count the characters of a text or a pair, or how many take as long; what else there may be takes long."""
    if isinstance(item, str):
        return len(item)
    if is_ids(item):
        return _CHARS_OF_AN_ID * len(item)
    return sum(map(_chars, item)) if isinstance(item, list | tuple) else _MANY_CHARS
