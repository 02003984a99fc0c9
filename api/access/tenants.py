"""What a replica knows and counts of its callers: their keys, limits and usage."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date
from types import TracebackType
from typing import NamedTuple, Self

from infinity_pool.api.access.keyring import Keyring
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import Backoff, connect, end, is_outage
from infinity_pool.broker.limiting import Limiter, Standing
from infinity_pool.broker.messages import Result
from infinity_pool.broker.usage import Tally, Used, read_usage

_PERIOD = 1.0  # s between two looks; a key that is revoked is refused within two
_PATIENCE = 3.0  # s for a look, at the start and at the end
_CONNECTIONS = 16


class Cost(NamedTuple):
    """What a request takes of its key's limits, tokens as estimated, and the seconds it may last."""

    requests: int
    items: int
    tokens: int
    timeout: float | None


class Tenants:
    """Keeps the keys fresh and the counts written, once a second; an async context manager."""

    def __init__(self, settings: ApiSettings, metrics: Metrics) -> None:
        self.keyring = Keyring(settings)
        self._url = settings.redis_url
        self._metrics = metrics
        self._tally = Tally()
        self._trouble = Backoff()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._redis = connect(self._url, max_connections=_CONNECTIONS)
        self._limiter = Limiter(self._redis)
        await self.look_soon()
        self._keeping = asyncio.create_task(self._keep(), name="infinity tenants")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._keeping)
        await self._limiter.close()
        await self.look_soon()  # so that what was counted last is written
        if self._looking is not None:
            await end(self._looking)
        await self._redis.aclose()

    async def look_soon(self) -> None:
        """Look at the keys now, with all others who ask; where Redis does not answer, all stays as it was."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="infinity look at keys")
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(self._looking)

    def standing(self, caller: Caller) -> Standing | None:
        """Give what a key had left when it was last counted here."""
        return self._limiter.standing(caller)

    async def usage(self, since: date) -> list[Used]:
        """Give what all callers had run since a day; raises redis.RedisError."""
        return await read_usage(self._redis, since)

    async def run(
        self, caller: Caller, model: str, task: str, cost: Cost, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Have some work done within a caller's limits, and count it; raises as `Limiter.reserve` and the work do."""
        result = await (self._within_limits(caller, cost, work) if caller.limited else work())
        self._metrics.ran(model, task, cost.items, result, caller.name, cost.requests)
        self._tally.add(caller.name, model, task, requests=cost.requests, items=cost.items, tokens=result.tokens)
        return result

    async def _within_limits(self, caller: Caller, cost: Cost, work: Callable[[], Awaitable[Result]]) -> Result:
        """Take the estimate, and settle it by what was run: nothing after an error, all of it if the caller left."""
        lease = await self._limiter.reserve(
            caller, items=cost.items, tokens=cost.tokens, requests=cost.requests, timeout=cost.timeout
        )
        spent = 0
        try:
            result = await work()
            spent = result.tokens
        except asyncio.CancelledError:  # what was done by then is not known, and leaving early must not make it free
            spent = lease.tokens
            raise
        finally:
            self._limiter.settle(lease, spent)
        return result

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            await self._look()

    async def _look(self) -> None:
        try:
            await self.keyring.refresh(self._redis)
            await self._tally.flush(self._redis)
            self._trouble.reset()
        except Exception as error:
            if not is_outage(error):
                raise
            self._trouble.failed("look at the keys", error)
