"""
What a key costs a request: `python -m tests.benchmarks.keys`.

The API's own work is timed in one process, on requests that are made up; the way to Redis and back beside a
plain PING.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from rich.console import Console
from rich.table import Table

from infinity_pool.api.access.auth import CALLER, check_key
from infinity_pool.api.access.keyring import Keyring
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import command, connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.keyring import Snapshot
from infinity_pool.broker.limiting import Limiter
from infinity_pool.broker.messages import Result
from infinity_pool.broker.usage import Tally

_TIMES = 20_000
_TRIPS = 3_000
_RESULT = Result("job", [], 7)
_LIMITED = Caller(
    name="limited",
    requests_per_minute=10**9,
    tokens_per_minute=10**12,
    concurrent_items=10**6,
    tokens_per_day=10**13,
    tokens_per_month=10**14,
)


def main() -> None:
    """Print what was measured."""
    table = Table("what", "µs", title="the cost of a key")
    plain, keyed = _request(Keyring(ApiSettings()), ""), _request(Keyring(ApiSettings(api_key="k")), "k")
    table.add_row("a request without a key: who calls, scopes, counts", f"{plain:.1f}")
    table.add_row("a request with a key", f"{keyed:.1f}")
    table.add_row("difference", f"{keyed - plain:.1f}")
    for what, micros in asyncio.run(_trips()).items():
        table.add_row(what, f"{micros:.0f}")
    Console().print(table)


def _request(keyring: Keyring, key: str) -> float:
    """Give the µs of what a request passes for its key's sake."""
    keyring._stored = Snapshot(None, {})  # as after a look
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request: web.Request = make_mocked_request("POST", "/embeddings", headers=headers)
    metrics, tally = Metrics(dict, int), Tally()

    def once() -> None:
        check_key(request, keyring)
        caller = request[CALLER]
        caller.check("m", "embed", "online")
        if not caller.limited:
            metrics.ran("m", "embed", 1, _RESULT, caller.name, 1)
            tally.add(caller.name, "m", "embed", requests=1, items=1, tokens=7)

    return min(_time(once) for _ in range(5))


def _time(once: Callable[[], None]) -> float:
    started = time.perf_counter()
    for _ in range(_TIMES):
        once()
    return (time.perf_counter() - started) / _TIMES * 1e6


async def _trips() -> dict[str, float]:
    with EmbeddedServer.start() as server:
        async with connect(server.url) as redis:
            limiter = Limiter(redis)

            async def ping() -> None:
                await command(redis, "PING")

            async def reserve() -> None:
                limiter.settle(await limiter.reserve(_LIMITED, items=1, tokens=10), 7)

            figures = {"PING": await _trip(ping), "limits reserved, and settled beside it": await _trip(reserve)}
            await limiter.close()
            return figures


async def _trip(once: Callable[[], Awaitable[None]]) -> float:
    times = []
    for _ in range(_TRIPS):
        started = time.perf_counter()
        await once()
        times.append((time.perf_counter() - started) * 1e6)
    return sorted(times)[_TRIPS // 2]


if __name__ == "__main__":
    main()
