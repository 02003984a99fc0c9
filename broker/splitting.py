"""Cuts a request into jobs of a bounded size, so that several workers can share it, and puts the answers together."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.messages import Array, Item, Result

JOB_ITEMS = 64
JOB_MEDIA = 4
"""Images or sounds in a job; a large one takes a second to decode, which nothing of its process can be done in."""
JOB_TOKENS = 4096
JOB_BYTES = 2**20
UNRUN_BYTES = 2**16
"""In a job for the tokenizer alone, which reads all of it: some 50 ms of a process that others wait for."""

_MEDIA_TOKENS = 256  # what an image or a sound is taken to cost until a worker knows better


class Limits(NamedTuple):
    """What the workers of a model publish for those who queue: see WorkerInfo."""

    tokens_per_char: float = 0.3
    max_length: int = 0
    max_chars: int = 0


class Part(NamedTuple):
    """The items of one job, and the estimate of their tokens."""

    items: list[Item]
    cost: int


def split(
    items: Sequence[Item],
    limits: Limits,
    *,
    keep_end: bool = False,
    tokens: int = JOB_TOKENS,
    most_bytes: int = JOB_BYTES,
) -> Iterator[Part]:
    """
    Cut items, in order, into parts of JOB_ITEMS or JOB_MEDIA, `tokens` and `most_bytes` at most, or of one item.

    Of texts that are longer than any worker reads the beginning is sent, or the end.
    """
    part: list[Item] = []
    cost = size = 0
    for item in items:
        item = _cut(item, limits.max_chars, keep_end)
        length = _length(item)
        estimated = estimate(item, length, limits)
        most = JOB_MEDIA if isinstance(item, bytes) else JOB_ITEMS
        if part and (len(part) >= most or cost + estimated > tokens or size + length > most_bytes):
            yield Part(part, cost)
            part, cost, size = [], 0, 0
        part.append(item)
        cost += estimated
        size += length
    if part:
        yield Part(part, cost)


def cost_of(items: Sequence[Item], limits: Limits) -> int:
    """Estimate the tokens of a request."""
    return sum(estimate(item, _length(item), limits) for item in items)


def estimate(item: Item, length: int, limits: Limits) -> int:
    """Estimate an item's tokens from its length; the door has no tokenizer."""
    if isinstance(item, bytes):
        return _MEDIA_TOKENS
    tokens = len(item) if is_ids(item) else int(length * limits.tokens_per_char) + 2
    return min(tokens, limits.max_length) if limits.max_length else tokens


def join(results: Sequence[Result]) -> Result:
    """Put the results of one request's parts together, in order; its times are those of the part that took longest."""
    if len(results) == 1:
        return results[0]
    return Result(
        results[0].job_id,
        _join_outputs([result.outputs for result in results]),
        sum(result.tokens for result in results),
        sum(result.truncated for result in results),
        max((result.times for result in results if result.times), key=sum, default=None),
    )


def _join_outputs(parts: list[Array | list[Any]]) -> Array | list[Any]:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    return [output for part in parts for output in part]


def is_ids(item: Item) -> bool:
    """Whether an item is token ids, in an array or a list."""
    return isinstance(item, np.ndarray) or (isinstance(item, list | tuple) and type(next(iter(item), None)) is int)


def _length(item: Item) -> int:
    """Give about how many bytes an item travels as."""
    if is_ids(item):
        return 4 * len(item)
    if isinstance(item, (str, bytes)):
        return len(item)
    return sum(_length(part) for part in item) if isinstance(item, (list, tuple)) else 1


def _cut(item: Item, max_chars: int, keep_end: bool) -> Item:
    """Drop what no worker would read: it is over the model's limit however it is tokenized."""
    if max_chars and isinstance(item, str) and len(item) > max_chars:
        return item[-max_chars:] if keep_end else item[:max_chars]
    if max_chars and isinstance(item, list | tuple) and not is_ids(item):  # a pair, of which a query is never cut
        return [_cut(part, max_chars, keep_end and place > 0) for place, part in enumerate(item)]
    return item
