"""Which items run together, and when. No Redis, no asyncio, no model."""

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from infinity_pool.broker.messages import Lane

T = TypeVar("T")

BULK_SHARE = 0.2
"""What bulk work gets of the device, at least, while online work waits too."""

MAX_WASTE = 0.05
"""Padding over padded tokens at which a batch stops growing, unless a batch of its own would cost more."""


@dataclass(frozen=True, slots=True)
class Budget:
    """
    How large a batch may be.

    `tokens` bounds its padded tokens; `overhead` is what the mere running of a batch costs, in tokens: padding up to
    that is cheaper than another batch. Both are measured at warm-up.
    """

    tokens: int
    overhead: int = 0


class Entry(NamedTuple, Generic[T]):
    """An item in line, by length, then by age."""

    length: int
    number: int
    value: T


class _Line(Generic[T]):
    """The items of one lane and head: sorted by length, and remembered by age."""

    def __init__(self) -> None:
        self.sorted: list[Entry[T]] = []
        self._by_age: deque[Entry[T]] = deque()
        self._taken: set[int] = set()

    def add(self, entries: list[Entry[T]]) -> None:
        self._by_age.extend(entries)
        self.sorted += entries
        self.sorted.sort()  # numbers differ, so values are never compared; two runs merge in one pass

    def oldest(self) -> Entry[T]:
        while self._by_age[0].number in self._taken:
            self._taken.discard(self._by_age.popleft().number)
        return self._by_age[0]

    def take(self, low: int, high: int) -> list[Entry[T]]:
        entries = self.sorted[low:high]
        del self.sorted[low:high]
        self._taken.update(entry.number for entry in entries)
        return entries


class Batcher(Generic[T]):
    """
    Forms batches: the oldest item and its nearest in length, all of one head, online before bulk.

    The oldest item always goes, so that none starves for its length.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._lines: dict[tuple[Lane, Hashable], _Line[T]] = {}
        self._count = 0
        self._tokens: dict[Lane, int] = {"online": 0, "bulk": 0}
        self._owed = 0.0  # tokens that bulk work may claim of the device

    def __len__(self) -> int:
        return sum(len(line.sorted) for line in self._lines.values())

    def tokens(self, lane: Lane) -> int:
        """Give the tokens in line in one lane."""
        return self._tokens[lane]

    def add(self, lane: Lane, head: Hashable, items: Iterable[tuple[int, T]]) -> None:
        """Put items, each with its length in tokens, in line."""
        entries = [Entry(length, number, value) for number, (length, value) in enumerate(items, self._count)]
        if entries:
            self._count += len(entries)
            self._tokens[lane] += sum(entry.length for entry in entries)
            self._lines.setdefault((lane, head), _Line()).add(entries)

    def take(self) -> list[T]:
        """Give the next batch, items in order of length; empty if nothing is in line."""
        if not self._lines:
            return []
        lane = self._next_lane()
        key = min((key for key in self._lines if key[0] == lane), key=lambda key: self._lines[key].oldest().number)
        line = self._lines[key]
        entries = line.take(*self._grow(line.sorted, line.oldest()))
        if not line.sorted:
            del self._lines[key]
        self._account(lane, entries)
        return [entry.value for entry in entries]

    def _next_lane(self) -> Lane:
        lanes = {lane for lane, _ in self._lines}
        if len(lanes) == 1:
            return lanes.pop()
        return "bulk" if self._owed >= self.budget.tokens else "online"

    def _account(self, lane: Lane, entries: list[Entry[T]]) -> None:
        self._tokens[lane] -= sum(entry.length for entry in entries)
        cost = entries[-1].length * len(entries) + self.budget.overhead
        contested = self._tokens["bulk"] or lane == "bulk"
        if not contested:
            self._owed = 0.0
        elif lane == "online":
            self._owed = min(self._owed + cost * BULK_SHARE / (1 - BULK_SHARE), 2.0 * self.budget.tokens)
        else:
            self._owed = max(0.0, self._owed - cost)

    def _grow(self, line: list[Entry[T]], oldest: Entry[T]) -> tuple[int, int]:
        """Give the bounds in a sorted line of the batch around the oldest item."""
        low = bisect_left(line, oldest)
        high = low + 1
        real = oldest.length
        while low > 0 or high < len(line):
            shorter = line[low - 1].length if low > 0 else None
            longer = line[high].length if high < len(line) else None
            if longer is None or (shorter is not None and oldest.length - shorter <= longer - oldest.length):
                assert shorter is not None
                grown, length = (low - 1, high), shorter
            else:
                grown, length = (low, high + 1), longer
            padded = line[grown[1] - 1].length * (grown[1] - grown[0])
            if not self._fits(padded, real + length):
                break
            (low, high), real = grown, real + length
        return low, high

    def _fits(self, padded: int, real: int) -> bool:
        waste = padded - real
        return padded <= self.budget.tokens and (waste <= self.budget.overhead or waste <= MAX_WASTE * padded)
