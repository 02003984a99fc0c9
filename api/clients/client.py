"""One client for both ways in: the queue itself, or an API replica over HTTP."""

from typing import Any

from redis.asyncio import Redis

from infinity_pool.api.clients.http_client import HttpClient
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InvalidInput

AnyClient = QueueClient | HttpClient

_QUEUES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_KINDS: dict[str, type[AnyClient]] = dict.fromkeys(_QUEUES, QueueClient) | dict.fromkeys(("http", "https"), HttpClient)


def Client(target: str | Redis, **options: Any) -> AnyClient:  # noqa: N802 # to its users it is a class
    """
    Make the client for a URL: redis://, rediss:// and unix:// reach the queue, http:// and https:// an API replica.

    redis+sentinel:// and redis+cluster://, also with rediss, reach the queue too, and a Redis connection stands for
    its own. Both kinds are async context managers with the methods `embed`, `rerank`, `classify`, `map`, `submit`,
    `labels` and `models`; what they raise is an InfinityError.

    Options of a QueueClient are `timeout` in seconds (60), `online_max_items` (8) and `limits` of the queue; those of
    an HttpClient are `api_key`, `timeout` in seconds (60), `verify` and `uds`. Raises InvalidInput, naming the schemes,
    for any other URL.
    """
    if not isinstance(target, str):
        return QueueClient(target, **options)
    kind = _KINDS.get(target.partition(":")[0])
    if kind is None:
        schemes = ", ".join(f"{scheme}://" for scheme in _KINDS)
        raise InvalidInput(f"a client's URL starts with one of {schemes}", param="target")
    return kind(target, **options)
