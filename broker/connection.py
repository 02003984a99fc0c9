"""How this project connects to Redis."""

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast
from urllib.parse import unquote

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from infinity_pool.broker.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")

BLOCK_MS = 500
"""How long a blocking read waits for something to come; it is never cancelled, so it bounds how long a stop takes."""

_SOCKET_TIMEOUT = 10.0  # s; far over BLOCK_MS, so a blocked read is no error, and a dead host is noticed
_CONNECT_TIMEOUT = 3.0  # s
_SENTINEL_PORT = "26379"
_REMINDER = 30.0  # s between two lines of the log about one outage
_DATA_LOST = ("NOGROUP", "UNBLOCKED")

logger = logging.getLogger(__name__)


def connect(url: str, *, max_connections: int = 32) -> Redis:
    """
    Open a client whose callers wait for a free connection instead of failing.

    `redis://`, `rediss://` (TLS) and `unix://` name one server, `redis+cluster://` a node of a cluster, and
    `redis+sentinel://host,host/service/db` the sentinels of a service; the last two also with `rediss`. Nothing is
    retried here: a command repeated behind our back could add a job twice. Raises InvalidInput, naming `redis_url`.
    """
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    try:
        if kind == "cluster":
            return _connect_cluster(f"{base}://{rest}")
        if kind == "sentinel":
            return _connect_sentinel(base, rest)
        return Redis.from_pool(_pool(url, max_connections))
    except ValueError as error:  # never with the URL, which may hold a password
        raise InvalidInput(f"the Redis URL cannot be used: {error}", param="redis_url") from None


def _options() -> dict[str, Any]:
    return {
        "socket_timeout": _SOCKET_TIMEOUT,
        "socket_connect_timeout": _CONNECT_TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
    }


def _pool(url: str, max_connections: int) -> BlockingConnectionPool:
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return BlockingConnectionPool.from_url(
        url, max_connections=max_connections, timeout=_SOCKET_TIMEOUT, **keepalive, **_options()
    )


def _connect_cluster(url: str) -> Redis:
    """Open a client of a cluster, which has the methods of a client that are used here."""
    return cast(Redis, RedisCluster.from_url(url, socket_keepalive=True, **_options()))


def _connect_sentinel(base: str, rest: str) -> Redis:
    """Open a client of the master that sentinels name, `user:password@host:port,host:port/service/db`."""
    credentials, _, places = rest.rpartition("@")
    hosts, _, path = places.partition("/")
    service, _, db = path.partition("/")
    user, _, password = credentials.partition(":")
    if not service:
        raise ValueError("after the sentinels, /SERVICE names what they watch")
    secure: dict[str, Any] = {"ssl": True} if base == "rediss" else {}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [_address(host) for host in hosts.split(",")], **_options(), **secure
    )
    master = sentinel.master_for(
        service,
        connection_pool_class=_SentinelPool,
        db=int(db or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        socket_keepalive=True,
    )
    return cast(Redis, master)


class _SentinelPool(SentinelConnectionPool):
    """Connections to the master; it closes those to the sentinels too, which redis-py leaves open."""

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


def _address(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":") if ":" in host else (host, "", _SENTINEL_PORT)
    return name.strip("[]"), int(port)


class _Outage:
    """
    What the log of this process has of an outage, whichever and however many of its loops meet it.

    One line says that it begins, one every _REMINDER seconds that it lasts, and one that it is over, which is when each
    loop that met it has got on. A loop that ended meanwhile counts no more.
    """

    def __init__(self) -> None:
        self._met_by: weakref.WeakSet[Backoff] = weakref.WeakSet()
        self._began = self._said = 0.0
        self._failures = 0

    def met(self, loop: "Backoff", what: str, error: Exception) -> None:
        now = time.monotonic()
        if not self._met_by:
            self._began, self._said, self._failures = now, now, 0
            logger.warning("trouble with the queue: cannot %s: %s", what, error)
        self._met_by.add(loop)
        self._failures += 1
        if now - self._said >= _REMINDER:
            self._said = now
            so_far = f"{now - self._began:.0f} s, {self._tries()}"
            logger.warning("the trouble with the queue goes on after %s: cannot %s: %s", so_far, what, error)

    def over(self, loop: "Backoff") -> None:
        self._met_by.discard(loop)
        if not self._met_by:
            logger.warning("the queue works again after %.1f s, %s", time.monotonic() - self._began, self._tries())

    def _tries(self) -> str:
        return f"{self._failures} failed {'try' if self._failures == 1 else 'tries'}"


_outage = _Outage()


class Backoff:
    """
    What one loop does between its tries: it pauses, at first for a moment, then twice as long each time, up to a bound.

    What it meets of an outage is told in the log once for all loops of this process.
    """

    def __init__(self, first: float = 0.02, longest: float = 0.5) -> None:
        self._first = first
        self._longest = longest
        self._next = first
        self._in_trouble = False

    def failed(self, what: str, error: Exception) -> None:
        """Tell that the queue was in trouble when this loop would do `what`."""
        self._in_trouble = True
        _outage.met(self, what, error)

    def reset(self) -> None:
        """Start short again: something worked."""
        self._next = self._first
        if self._in_trouble:
            self._in_trouble = False
            _outage.over(self)

    async def pause(self) -> None:
        """Pause before the next try."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        await asyncio.sleep(pause)


async def command(redis: Redis, *parts: Any) -> Any:
    """Send one raw command."""
    return await redis.execute_command(*parts)  # type: ignore[no-untyped-call] # redis-py leaves it untyped


def put(pipe: Pipeline, *parts: Any) -> None:
    """Put one raw command in line on a pipeline."""
    pipe.execute_command(*parts)


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


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended: redis-py swallows a cancellation that comes in one tick with a reply."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)


async def through_outages(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Ask until it is answered, however long the queue is away: for what must not be given up."""
    backoff = Backoff()
    while True:
        try:
            answer = await ask(*args, **kwargs)
        except Exception as error:
            if not is_outage(error):
                raise
            backoff.failed("go on", error)
            await backoff.pause()
        else:
            backoff.reset()
            return answer
