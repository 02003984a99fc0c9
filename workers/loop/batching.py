"""Which items run together, and when. No Redis, no asyncio, no model."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from infinity_pool.broker.messages import LANES, Lane

T = TypeVar("T")

BULK_SHARE = 0.2
"""What bulk work gets of the device, at least, while online work waits too."""

MAX_WASTE = 0.05
"""Padding over padded tokens at which a batch stops growing, unless a batch of its own would cost more."""

MAX_SPREAD = 4
"""Padded tokens of a packed batch over its budget, at most: that much room its outputs take, laid out by texts."""

_SHORTER = 8  # is a short batch than a full one, where running it costs next to nothing
_OVERHEADS = 4  # of a batch are worth one: a short batch is spent on its items for four fifths at least
_AHEAD = 1 << 62  # by which what goes ahead counts as older than it is
_MANY = 1 << 62


@dataclass(frozen=True, slots=True)
class Budget:
    """
    How large a batch may be.

    `tokens` bounds its padded tokens; `overhead` is what the mere running of a batch costs, in tokens: padding up to
    that is cheaper than another batch. Both are measured at warm-up. Where batches are `packed` there is no padding,
    and `tokens` bounds the real ones. `moment` are the tokens that are run in so little time that nobody minds.
    """

    tokens: int
    overhead: int = 0
    packed: bool = False
    moment: int = _MANY

    @property
    def short(self) -> int:
        """Give the tokens of a batch that somebody may come to wait for: few, but with little overhead even so."""
        worth_it = min(_OVERHEADS * self.overhead, self.moment)
        return min(self.tokens, max(self.tokens // _SHORTER, worth_it))

    def cost(self, items: int, tokens: int, longest: int) -> int:
        """Give how many tokens the network runs for some items that have so many, and of which one is the longest."""
        return tokens if self.packed else longest * items


class Entry(NamedTuple, Generic[T]):
    """An item in line, by length, then by age."""

    length: int
    number: int
    value: T


class _Line(Generic[T]):
    """
    The items of one lane and head: sorted by length, and remembered by age, those that go ahead first.

    They do so until they have had `credit` tokens more than the others that wait: callers who come again at once would
    have all of the device.
    """

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self.sorted: list[Entry[T]] = []
        self._ahead: deque[Entry[T]] = deque()
        self._by_age: deque[Entry[T]] = deque()
        self._taken: set[int] = set()
        self._favoured = 0  # tokens that those ahead have had beyond those of others

    def add(self, entries: list[Entry[T]], *, ahead: bool) -> None:
        (self._ahead if ahead else self._by_age).extend(entries)
        self.sorted += entries
        self.sorted.sort()  # numbers differ, so values are never compared; two runs merge in one pass

    def oldest(self) -> Entry[T]:
        ahead, waiting = self._first(self._ahead), self._first(self._by_age)
        first = (waiting or ahead) if self._favoured > self._credit else (ahead or waiting)
        assert first is not None, "an empty line is removed"
        return first

    def _first(self, entries: deque[Entry[T]]) -> Entry[T] | None:
        while entries and entries[0].number in self._taken:
            self._taken.discard(entries.popleft().number)
        return entries[0] if entries else None

    def take(self, low: int, high: int) -> list[Entry[T]]:
        entries = self.sorted[low:high]
        del self.sorted[low:high]
        self._taken.update(entry.number for entry in entries)
        self._favour(entries)
        return entries

    def _favour(self, entries: list[Entry[T]]) -> None:
        tokens = sum(entry.length for entry in entries)
        ahead = sum(entry.length for entry in entries if entry.number < 0)
        self._favoured = max(0, self._favoured + 2 * ahead - tokens) if self._first(self._by_age) else 0


class Batcher(Generic[T]):
    """
    Forms batches: the oldest item and its nearest in length, all of one head, online before bulk.

    The oldest item always goes, so that none starves for its length. Bulk items never fill up an online batch: they
    would make it longer for those who wait for it.
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

    def add(self, lane: Lane, head: Hashable, items: Iterable[tuple[int, T]], *, ahead: bool = False) -> None:
        """Put items, each with its length in tokens, in line, or ahead of those that are in it."""
        first = self._count - _AHEAD if ahead else self._count
        entries = [Entry(length, number, value) for number, (length, value) in enumerate(items, first)]
        if entries:
            self._count += len(entries)
            self._tokens[lane] += sum(entry.length for entry in entries)
            self._lines.setdefault((lane, head), _Line(self.budget.tokens)).add(entries, ahead=ahead)

    def take(self, short: Container[Lane] = ()) -> list[T]:
        """Give the next batch, a short one if it is of a lane that is to have them; empty if nothing is in line."""
        if not self._lines:
            return []
        most = {lane: self.budget.short if lane in short else self.budget.tokens for lane in LANES}
        lane = self._next_lane(most["bulk"])
        key = min((key for key in self._lines if key[0] == lane), key=lambda key: self._lines[key].oldest().number)
        line = self._lines[key]
        entries = line.take(*self._around_oldest(line, most[lane]))
        if not line.sorted:
            del self._lines[key]
        self._account(lane, entries)
        return [entry.value for entry in entries]

    def _next_lane(self, bulk_batch: int) -> Lane:
        lanes = {lane for lane, _ in self._lines}
        if len(lanes) == 1:
            return lanes.pop()
        return "bulk" if self._owed >= bulk_batch else "online"

    def _account(self, lane: Lane, entries: list[Entry[T]]) -> None:
        real = sum(entry.length for entry in entries)
        self._tokens[lane] -= real
        cost = self.budget.cost(len(entries), real, entries[-1].length) + self.budget.overhead
        if lane == "bulk":
            self._owed = max(0.0, self._owed - cost)
        elif self._tokens["bulk"]:
            self._owed = min(self._owed + cost * BULK_SHARE / (1 - BULK_SHARE), 2.0 * self.budget.tokens)
        else:
            self._owed = 0.0

    def _around_oldest(self, line: _Line[T], most: int) -> tuple[int, int]:
        """Give the bounds in a line of the batch around its oldest item: its nearest in length that fit."""
        items = line.sorted
        low = bisect_left(items, line.oldest())
        high = low + 1
        near = real = longest = items[low].length
        count = 1
        while low > 0 or high < len(items):
            shorter = near - items[low - 1].length if low > 0 else math.inf
            longer = items[high].length - near if high < len(items) else math.inf
            down = shorter <= longer and longer > 0  # of its own length those that came after it, not those ahead
            length = items[low - 1].length if down else items[high].length
            count, real, longest = count + 1, real + length, max(longest, length)
            if not self._fits(longest * count, real, most):
                break
            low, high = (low - 1, high) if down else (low, high + 1)
        return low, high

    def _fits(self, padded: int, real: int, most: int) -> bool:
        if self.budget.packed:
            return real <= most and padded <= MAX_SPREAD * most
        waste = padded - real
        return padded <= most and (waste <= self.budget.overhead or waste <= MAX_WASTE * padded)
