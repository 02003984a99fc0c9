"""How this project connects to Redis."""

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

BLOCK_MS = 500
"""How long a blocking read waits for something to come; it is never cancelled, so it bounds how long a stop takes."""

_SOCKET_TIMEOUT = 10.0  # s; far over BLOCK_MS, so a blocked read is no error, and a dead host is noticed
_DATA_LOST = ("NOGROUP", "UNBLOCKED")


def connect(url: str, *, max_connections: int = 32) -> Redis:
    """
    Open a client whose callers wait for a free connection instead of failing.

    Nothing is retried here: a command repeated behind our back could add a job twice.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=_SOCKET_TIMEOUT,
        socket_timeout=_SOCKET_TIMEOUT,
        socket_connect_timeout=5.0,
        retry=Retry(NoBackoff(), 0),
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
    )
    return Redis.from_pool(pool)


class Backoff:
    """Pauses between tries during an outage: short at first, twice as long each time, up to a bound."""

    def __init__(self, first: float = 0.02, longest: float = 0.5) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        """Start short again: something worked."""
        self._next = self._first

    async def pause(self) -> None:
        """Pause before the next try."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        await asyncio.sleep(pause)


async def command(redis: Redis, *parts: Any) -> Any:
    """Send one raw command; on a pipeline, put it in line."""
    reply = redis.execute_command(*parts)  # type: ignore[no-untyped-call] # redis-py leaves it untyped
    return await reply if isinstance(reply, Awaitable) else reply


def is_outage(error: BaseException) -> bool:
    """Say whether an error is the queue's trouble, which passes, and not ours."""
    return isinstance(error, (RedisError, RedisConnectionError, OSError, TimeoutError))


def group_is_gone(error: ResponseError) -> bool:
    """Say whether Redis lost its data (FLUSHALL, a restart), so that groups must be made anew."""
    return any(word in str(error) for word in _DATA_LOST)


class ServerIdentity(NamedTuple):
    """The server process behind a connection; another `run_id` means that data may be lost."""

    run_id: str
    uptime: float  # s


async def identify(redis: Redis) -> ServerIdentity:
    """Ask which server process answers."""
    info = await redis.info("server")
    return ServerIdentity(str(info["run_id"]), float(info["uptime_in_seconds"]))
