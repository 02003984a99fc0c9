"""What was run, by key, model, task and day: counted here, and added up in Redis about once a second."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.connection import command, put

KEPT_DAYS = 400
_USUAL_DAYS = 30
UNITS = ("requests", "items", "tokens")

_NOBODY = "-"  # in place of the name of a caller without a key; no key can be called so, see `read_caller`


class Used(NamedTuple):
    """What one key had one model do on one day, in one task; no name: callers without a key."""

    day: str
    key: str
    model: str
    task: str
    requests: int
    items: int
    tokens: int


class Tally:
    """Counts of one replica that are not in Redis yet; a kill loses those of the last second."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, key: str, model: str, task: str, *, requests: int, items: int, tokens: int) -> None:
        """Count what was run."""
        day, about = today().isoformat(), f"{key or _NOBODY} {model} {task}"
        for unit, count in zip(UNITS, (requests, items, tokens), strict=True):
            self._counts[day, f"{about} {unit}"] += count

    async def flush(self, redis: Redis) -> None:
        """Add all of it to what Redis has; raises redis.RedisError, and then it is kept for the next time."""
        counts, self._counts = self._counts, Counter()
        try:
            for day in {day for day, _ in counts}:
                await _write(redis, day, {field: count for (each, field), count in counts.items() if each == day})
                counts = Counter({at: count for at, count in counts.items() if at[0] != day})
        finally:
            self._counts.update(counts)


async def _write(redis: Redis, day: str, counts: dict[str, int]) -> None:
    async with redis.pipeline(transaction=True) as pipe:
        for field, count in counts.items():
            put(pipe, "HINCRBY", keys.usage(day), field, count)
        put(pipe, "EXPIRE", keys.usage(day), KEPT_DAYS * 86_400)
        await pipe.execute()


async def read_usage(redis: Redis, since: date) -> list[Used]:
    """Give what was run since a day, by day, key, model and task."""
    found: list[Used] = []
    for day in _days(max(since, today() - timedelta(days=KEPT_DAYS))):
        stored = await command(redis, "HGETALL", keys.usage(day))
        pairs = stored.items() if isinstance(stored, dict) else zip(stored[::2], stored[1::2], strict=True)
        found += _rows(day, {field.decode(): int(count) for field, count in pairs})
    return found


def today() -> date:
    """Give the day it is, in UTC."""
    return datetime.now(UTC).date()


def first_day(text: str | None) -> date:
    """Read the first day that is asked about, as 2026-11-30; without one it is 30 days ago. Raises ValueError."""
    return today() - timedelta(days=_USUAL_DAYS) if text is None else date.fromisoformat(text)


def _days(since: date) -> Iterator[str]:
    for days in range((today() - since).days + 1):
        yield (since + timedelta(days=days)).isoformat()


def _rows(day: str, counts: dict[str, int]) -> Iterator[Used]:
    for about in sorted({field.rpartition(" ")[0] for field in counts}):
        key, model, task = about.split(" ")
        units = (counts.get(f"{about} {unit}", 0) for unit in UNITS)
        yield Used(day, "" if key == _NOBODY else key, model, task, *units)
