"""All keys that a replica knows: the one of --api-key, those of a file, and those managed in Redis."""

import hmac

from redis.asyncio import Redis

from infinity_pool.api.access.key_file import KeyFile
from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.callers import ANYONE, Caller, digest
from infinity_pool.broker.errors import Unavailable
from infinity_pool.broker.keyring import Snapshot, look

_ONLY = Caller(name="api-key", admin=True)
"""Who has the key of --api-key."""

_PLACE = 16  # digits of a hash by which it is looked up; all of them are compared then
_NOBODY = ("0" * 64, _ONLY)


class Keyring:
    """
    Finds callers by their key's hash.

    What Redis has is looked at about once a second; while it is away, the last look holds. A replica that once knew a
    key never opens to all, though the last key may be revoked, or Redis lose its data.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self._one = {digest(settings.api_key): _ONLY} if settings.api_key else {}
        self._file = KeyFile(settings.api_key_file) if settings.api_key_file else None
        self._stored: Snapshot | None = None
        self._closed = settings.require_key or bool(self._one) or self._file is not None
        self._callers: dict[str, tuple[str, Caller]] = {}
        self._gather()

    @property
    def known(self) -> bool:
        """Whether it is known if a key is asked for."""
        return self._closed or self._stored is not None

    @property
    def closed(self) -> bool:
        """Whether a key is asked for; raises Unavailable while that is not known."""
        if not self.known:
            raise Unavailable("the queue cannot be reached, so it is not known who may call", retry_after=1.0)
        return self._closed

    def find(self, key: str) -> Caller | None:
        """Give who has a key; the work is the same for one that is wrong."""
        hashed = digest(key)
        known, caller = self._callers.get(hashed[:_PLACE], _NOBODY)
        return caller if hmac.compare_digest(hashed, known) else None

    def named(self, name: str) -> Caller | None:
        """Give who has a name, None if nobody has it any more; raises Unavailable while that is not known."""
        return self._named.get(name) if self.closed else ANYONE

    async def refresh(self, redis: Redis) -> None:
        """Look whether keys have changed; raises redis.RedisError."""
        if self._file is not None:
            self._file.refresh()
        try:
            self._stored = await look(redis, self._stored)
            self._closed = self._closed or self._stored.version is not None
        finally:
            self._gather()

    def _gather(self) -> None:
        stored = self._stored.callers if self._stored else {}
        known = {**stored, **(self._file.callers if self._file else {}), **self._one}
        self._callers = {hashed[:_PLACE]: (hashed, caller) for hashed, caller in known.items()}
        self._named = {caller.name: caller for caller in known.values()}
