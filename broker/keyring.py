"""The API keys that are managed in Redis: only their hashes, what each may do, and who changed what."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.callers import Caller, check_hash, digest, new_secret, read_caller
from infinity_pool.broker.connection import command
from infinity_pool.broker.errors import InvalidInput

MOST_KEYS = 10_000
_MOST_LINES = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The keys as of one version, by hash; no version: none was ever managed here."""

    version: bytes | None
    callers: Mapping[str, Caller]


@dataclass(frozen=True)
class Change:
    """A line of the log; `when` is in seconds since 1970."""

    when: float
    what: str
    name: str
    who: str
    about: str


async def look(redis: Redis, last: Snapshot | None) -> Snapshot:
    """Give the keys; only where their version is another than that of the last look are they read again."""
    version = await command(redis, "GET", keys.callers_version())
    if last is not None and version == last.version:
        return last
    stored = await command(redis, "HGETALL", keys.callers())
    return Snapshot(version, _read_all(_pairs(stored)))


async def add(redis: Redis, caller: Caller, who: str) -> str:
    """Add a key and give it, this once; raises InvalidInput if there is one of this name."""
    secret = new_secret()
    await _change(redis, "add", caller.name, who, digest(secret), orjson.dumps(caller.told()))
    return secret


async def rotate(redis: Redis, name: str, who: str) -> str:
    """Put a new key in the place of another, whose rights and counts it has, and give it; raises InvalidInput."""
    secret = new_secret()
    await _change(redis, "rotate", name, who, digest(secret))
    return secret


async def revoke(redis: Redis, name: str, who: str) -> None:
    """Take a key away; raises InvalidInput if there is none of this name."""
    await _change(redis, "revoke", name, who)


async def read_log(redis: Redis) -> list[Change]:
    """Give what was done with keys, the oldest first."""
    entries = await command(redis, "XRANGE", keys.callers_log(), "-", "+")
    return [_line(entry_id, fields) for entry_id, fields in entries]


async def _change(redis: Redis, what: str, name: str, who: str, hashed: str = "", about: bytes = b"") -> None:
    named = [keys.callers(), keys.callers_version(), keys.callers_log()]
    args = [what, name, hashed, about, uuid.uuid4().hex, who, MOST_KEYS, _MOST_LINES]
    trouble = str(await scripts.run(redis, "change_key", named, args), "ascii")
    if trouble == "full":
        raise InvalidInput(f"there are {MOST_KEYS} keys, and no more can be added", param="name")
    if trouble:
        raise InvalidInput(f"key {name!r} {'is there already' if trouble == 'exists' else 'is not here'}", param="name")


def _read_all(stored: Mapping[bytes, bytes]) -> dict[str, Caller]:
    """Read the keys by hash; one that cannot be read lets nobody in, and the log says so."""
    found = {}
    for name, record in sorted(stored.items()):
        try:
            fields: dict[str, Any] = {"name": name.decode(), **orjson.loads(record[64:])}
            found[check_hash(record[:64].decode())] = read_caller(fields)
        except (InvalidInput, ValueError, TypeError) as error:
            logger.error("the key %r cannot be read, and is refused: %s", name, error)
    return found


def _pairs(reply: Any) -> Mapping[bytes, bytes]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _line(entry_id: bytes, fields: Any) -> Change:
    told = {name.decode(): value.decode("utf-8", "replace") for name, value in dict(fields).items()}
    when = int(entry_id.split(b"-")[0]) / 1000
    return Change(when, *(told.get(name, "") for name in ("what", "name", "who", "about")))
