"""
What keys may ask for, counted in Redis for all replicas at once: token buckets, quotas, and items in hand.

A request's tokens are estimated, taken before it is queued, and settled when they are known. A replica that dies
settles nothing: its leases on items in hand end by themselves, and its estimates stay counted.
"""

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.callers import LIMITS, Caller
from infinity_pool.broker.connection import Backoff, is_outage
from infinity_pool.broker.errors import Forbidden, InfinityError, QuotaExceeded, RateLimited, Unavailable

_MARGIN = 2.0  # s that a lease lasts longer than its request may
_SHORTEST = 0.05  # s, in Retry-After
_PATIENCE = 3.5  # s; a queue that hangs is as good as away
_PARTING = 2.0  # s, to settle what ended last
_LONG = 24 * 3600.0  # s, for a request without a deadline


@dataclass(frozen=True)
class Standing:
    """What a key has left, as of the last time it was counted, `at` in seconds of a monotonic clock."""

    at: float
    requests: int
    tokens: int
    items: int
    day: int
    month: int


@dataclass(frozen=True)
class Lease:
    """What was taken for one request; it is settled once."""

    caller: Caller
    id: str
    items: int
    tokens: int
    day: str


class Limiter:
    """
    Takes what requests cost out of their keys' limits.

    `now` gives the time in seconds since 1970 that limits are counted by, for tests; without it minutes are counted by
    the server's clock, which all replicas share, and days by this host's.
    """

    def __init__(self, redis: Redis, now: Callable[[], float] | None = None) -> None:
        self._redis = redis
        self._now = now
        self._prefix = uuid.uuid4().hex[:16]
        self._numbers = itertools.count()
        self._standings: dict[str, Standing] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._trouble = Backoff()

    def standing(self, caller: Caller) -> Standing | None:
        """Give what a key had left when it was last counted here."""
        return self._standings.get(caller.name)

    async def reserve(
        self, caller: Caller, *, items: int, tokens: int, requests: int = 1, timeout: float | None = None
    ) -> Lease:
        """
        Take a request of so many items and, as estimated, tokens, which will be over in `timeout` seconds.

        Raises RateLimited and QuotaExceeded, which say when to come again, Forbidden for more items than the key may
        ever have in hand, and Unavailable while Redis is away.
        """
        if 0 < caller.concurrent_items < items:
            raise Forbidden(f"this key may have {caller.concurrent_items} items in hand at once, not {items}")
        lease = Lease(caller, f"{self._prefix}-{next(self._numbers)}:{items}", items, tokens, self._today())
        seconds = _LONG if timeout is None else timeout
        cost = [requests, tokens, items, lease.id, int((seconds + _MARGIN) * 1000)]
        now = int(self._now() * 1000) if self._now else 0
        refused, wait, *left = await self._ask(lease, [now, *_limits(caller), *cost], seconds)
        self._standings[caller.name] = Standing(time.monotonic(), *map(int, left))
        if refused:
            raise self._refusal(str(refused, "ascii"), int(wait) / 1000, caller)
        return lease

    def settle(self, lease: Lease, tokens: int) -> None:
        """Put the tokens that a request really took in the place of the estimate; nothing is awaited."""
        self._start(self._settle(lease, lease.tokens - tokens))

    async def close(self) -> None:
        """Settle what ended last."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=_PARTING)

    async def _ask(self, lease: Lease, args: list[Any], seconds: float) -> Any:
        """Run the script, in a task of its own, as redis-py may swallow a cancellation; raises Unavailable."""
        asking = asyncio.create_task(scripts.run(self._redis, "limit", _keys(lease), args), name="infinity limit")
        try:
            async with asyncio.timeout(min(_PATIENCE, seconds)):
                return await asyncio.shield(asking)
        except (asyncio.CancelledError, TimeoutError) as error:
            self._start(self._settle(lease, 0, asking))
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Unavailable("the queue does not answer now", retry_after=1.0) from error
        except Exception as error:
            if not is_outage(error):
                raise
            raise Unavailable("the queue cannot be reached now", retry_after=1.0) from error

    async def _settle(self, lease: Lease, back: int, asking: asyncio.Task[Any] | None = None) -> None:
        """Tell Redis; where nobody heard whether a lease was given, once that is over."""
        try:
            if asking is not None:
                await asking
            await scripts.run(self._redis, "settle", _keys(lease), [lease.id, lease.items, back])
            self._trouble.reset()
        except Exception as error:
            if not is_outage(error):
                raise
            self._trouble.failed("settle what a key has used", error)  # its lease ends by itself

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="infinity settle")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _today(self) -> str:
        return f"{self._date():%Y-%m-%d}"

    def _date(self) -> datetime:
        return datetime.fromtimestamp(self._now() if self._now else time.time(), UTC)

    def _refusal(self, what: str, wait: float, caller: Caller) -> InfinityError:
        if what in ("day", "month"):
            most, now = getattr(caller, f"tokens_per_{what}"), self._date()
            until = (_next_day(now) if what == "day" else _next_month(now)) - now
            message = f"this key may use {most} tokens a {what}, and has not so many left until it is over (UTC)"
            return QuotaExceeded(message, retry_after=until.total_seconds())
        most = caller.concurrent_items if what == "items" else getattr(caller, f"{what}_per_minute")
        unit = "items in hand at once" if what == "items" else f"{what} a minute"
        return RateLimited(f"this key may ask for {most} {unit}", retry_after=max(_SHORTEST, wait))


def _keys(lease: Lease) -> list[str]:
    name, day = lease.caller.name, lease.day
    return [keys.buckets(name), keys.leases(name), keys.quota(name, day), keys.quota(name, day[:7])]


def _limits(caller: Caller) -> list[int]:
    return [getattr(caller, limit) for limit in LIMITS]


def _next_day(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _next_month(now: datetime) -> datetime:
    """Give the first moment of the next month: 31 days after the first of one are in the next."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=31)).replace(day=1)
