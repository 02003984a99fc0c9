"""Runs a model before it serves: to find how large a batch should be, and so that the first caller need not wait."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import kind_of
from infinity_pool.workers.interface import Batch, Engine, Family, Packs, Rows
from infinity_pool.workers.loop.batching import Budget

_LENGTH = 32  # tokens of the texts that are run
_GOOD_ENOUGH = 0.97  # of the best throughput
_SMALLEST = 256  # padded tokens; less would hardly shorten what a caller waits for, and a busy moment could ask for it
_USUAL = 512  # padded tokens that are no long wait where they take no more than _SHORT, and let bulk work share batches
_SHORT = 0.1  # s
_MOMENT = 0.05  # s; for a batch that somebody may come to wait for
_LARGEST = {"cpu": 4096, "openvino": 4096}  # padded tokens tried on a kind of device
_LARGEST_ELSEWHERE = 131_072
_REPEATS = 3
_HANDLING = 800e-6  # s; what taking, forming, starting and answering a batch costs besides the network, on shared cores


class Measured(NamedTuple):
    """The budget found, and the speed at it."""

    budget: Budget
    tokens_per_second: float


def warm_up(family: Family, engine: Engine, wanted: str) -> Measured:
    """
    Run growing batches; `wanted` is "auto" or a number of padded tokens.

    auto takes the smallest budget within 3% of the best throughput: a batch is what an interactive request waits for
    at worst, so it should be no longer than it must. Raises InvalidInput, naming `batch_tokens`, on another word.
    """
    fixed = _parse(wanted)
    rows = _text_rows(family)
    points = list(_measure(lambda count: _time(family, engine, rows, count), _sizes(engine.device, rows, fixed)))
    best = max(tokens / seconds for tokens, seconds in points)
    enough = next(point for point in points if point[0] / point[1] >= _GOOD_ENOUGH * best)
    tokens, seconds = points[-1] if fixed else enough
    packed = isinstance(engine, Packs) and engine.packed
    speed = tokens / seconds
    budget = Budget(fixed or max(tokens, _floor(points)), _overhead(points), packed, moment=int(_MOMENT * speed))
    return Measured(budget, speed)


def _floor(points: list[tuple[int, float]]) -> int:
    """Say which budget is small enough for anybody: a moment's work."""
    return max([_SMALLEST, *(tokens for tokens, seconds in points if tokens <= _USUAL and seconds <= _SHORT)])


def _parse(wanted: str) -> int:
    if wanted == "auto":
        return 0
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    raise InvalidInput(f"batch_tokens is auto or a number of tokens, not {wanted!r}", param="batch_tokens")


def _text_rows(family: Family) -> Rows:
    """Prepare one text of about _LENGTH tokens."""
    text = "the " * (_LENGTH - 2)
    return family.prepare(family.head(family.tasks[0], {}), [family.example(text)], {})


def _sizes(device: str, rows: Rows, fixed: int) -> Iterator[int]:
    """Give the numbers of texts to try: doubled each time, up to what the device is taken to bear."""
    largest = fixed or _LARGEST.get(kind_of(device), _LARGEST_ELSEWHERE)
    count = 1
    while count == 1 or count * int(rows.lengths[0]) <= largest:
        yield count
        count *= 2


def _measure(run: Callable[[int], tuple[int, float]], sizes: Iterator[int]) -> Iterator[tuple[int, float]]:
    """Give (tokens, seconds) for each size, until larger ones have twice brought nothing and are no moment's work."""
    best, idle = 0.0, 0
    for size in sizes:
        tokens, seconds = run(size)
        yield tokens, seconds
        better = tokens / seconds > best * (2 - _GOOD_ENOUGH)
        best = max(best, tokens / seconds)
        idle = 0 if better else idle + 1
        if idle >= 2 and (2 * tokens > _USUAL or 2 * seconds > _SHORT):
            return


def _time(family: Family, engine: Engine, rows: Rows, count: int) -> tuple[int, float]:
    batch = family.collate([rows.select([0] * count)])
    engine.run(batch, family.reduce)  # the first run of a shape allocates, or compiles
    seconds = min(_once(family, engine, batch) for _ in range(_REPEATS))
    return count * int(rows.lengths[0]), seconds


def _once(family: Family, engine: Engine, batch: Batch) -> float:
    start = time.perf_counter()
    engine.run(batch, family.reduce)
    return max(time.perf_counter() - start, 1e-9)


def _overhead(points: list[tuple[int, float]]) -> int:
    """Say how many tokens could be run in the time that a batch takes however small it is."""
    (few, short), (many, long) = points[0], points[-1]
    if many == few or long <= short:
        return many
    per_token = (long - short) / (many - few)
    fixed = max(0.0, short - per_token * few) + _HANDLING
    return int(fixed / per_token)
