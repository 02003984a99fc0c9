"""
Infinity Pool: embeddings and their kin, served by a pool of worker processes behind a message queue.

* `Client(url)` asks a server over HTTP, or the workers through their queue; `await` its methods
* `SyncClient(url)` is the same for programs that do not await
* `Document(id, item)` is what `map` of both takes beside plain texts
* `InfinityError` is the base of all errors that they raise; the others are in `infinity_pool.broker.errors`
* `connect(url)` opens the Redis of a queue; a client takes it in place of a URL

`broker`, `workers`, `api` and `cli` in this folder link to the top folders of those names.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infinity_pool.api.clients.client import Client
    from infinity_pool.api.clients.sync_client import SyncClient
    from infinity_pool.broker.connection import connect
    from infinity_pool.broker.errors import InfinityError
    from infinity_pool.broker.mapping import Document

__all__ = ["Client", "Document", "InfinityError", "SyncClient", "connect"]
__version__ = "0.1.0"

_HOMES = {
    "Client": "infinity_pool.api.clients.client",
    "Document": "infinity_pool.broker.mapping",
    "InfinityError": "infinity_pool.broker.errors",
    "SyncClient": "infinity_pool.api.clients.sync_client",
    "connect": "infinity_pool.broker.connection",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that a worker never loads the HTTP client."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
