"""Records that callers have by id, files and batches: listed by owner and time, and gone when they expire."""

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import orjson
from redis.asyncio import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.connection import command, put
from infinity_pool.broker.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AnyKind = TypeVar("AnyKind", bound="DataclassInstance")

ALL = "*"
"""In place of an owner's name: whoever it is."""

NOBODY = "-"
"""In place of the name of a caller without a key; no key can be called so."""

_GRACE = 86_400  # s after which Redis drops what nobody removed
_LONG = 400 * 86_400  # s by which a list outlives what was added to it last
_DUE = 100  # named at once


class Record(NamedTuple):
    """What is known of something, by field."""

    id: str
    fields: dict[str, Any]


def read(kind: type[AnyKind], record: Record) -> AnyKind:
    """Make a dataclass of a record; fields of later versions are passed over."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in record.fields.items() if name in known})


def encode(fields: Mapping[str, Any]) -> list[bytes | str]:
    """Give fields and their values as Redis has them, one after another."""
    return [part for name, value in fields.items() for part in (name, orjson.dumps(value))]


async def add(redis: Redis, kind: str, record: Record, owner: str, expires_at: int, *, opened: bool = False) -> None:
    """Put down a record, in place of one of the same id; as a batch to be run where it is `opened`."""
    now, gone = time.time_ns() // 1000, expires_at + _GRACE
    async with redis.pipeline(transaction=True) as pipe:
        put(pipe, "HSET", keys.record(record.id), *encode(record.fields))
        put(pipe, "EXPIREAT", keys.record(record.id), gone)
        for each in (owner or NOBODY, ALL):
            put(pipe, "ZADD", keys.kept(kind, each), "NX", now, record.id)
            put(pipe, "EXPIREAT", keys.kept(kind, each), gone + _LONG)
        put(pipe, "ZADD", keys.expiring(), expires_at, record.id)
        put(pipe, "EXPIREAT", keys.expiring(), gone + _LONG)
        if opened:
            put(pipe, "ZADD", keys.open_batches(), now, f"{record.id} {owner or NOBODY}")
        await pipe.execute()


async def get(redis: Redis, id: str) -> Record | None:
    """Give a record, None if there is none."""
    found = _fields(await command(redis, "HGETALL", keys.record(id)))
    return Record(id, found) if found else None


async def page(
    redis: Redis, kind: str, owner: str, after: str | None, limit: int, order: Literal["asc", "desc"] = "desc"
) -> tuple[list[Record], str | None]:
    """
    Give up to `limit` records of an owner, or of ALL, that follow the one called `after`.

    With them comes what `after` is for more of them, None if there are none. Raises InvalidInput if that is no id.
    """
    listed, first = keys.kept(kind, owner or NOBODY), 0
    rank, span = ("ZRANK", "ZRANGE") if order == "asc" else ("ZREVRANK", "ZREVRANGE")
    if after is not None:
        place = await command(redis, rank, listed, after)
        if place is None:
            raise InvalidInput(f"after: there is no {after[:100]!r}", param="after")
        first = place + 1
    names = [name.decode() for name in await command(redis, span, listed, first, first + limit)]
    async with redis.pipeline(transaction=False) as pipe:
        for name in names[:limit]:
            put(pipe, "HGETALL", keys.record(name))
        answers = await pipe.execute() if names else []
    found = [Record(name, _fields(answer)) for name, answer in zip(names, answers, strict=False)]
    return [record for record in found if record.fields], names[limit - 1] if len(names) > limit else None


async def remove(redis: Redis, kind: str, id: str, owner: str) -> None:
    """Forget a record."""
    async with redis.pipeline(transaction=True) as pipe:
        put(pipe, "DEL", keys.record(id))
        for each in (owner or NOBODY, ALL):
            put(pipe, "ZREM", keys.kept(kind, each), id)
        put(pipe, "ZREM", keys.expiring(), id)
        await pipe.execute()


async def expect(redis: Redis, id: str, by: int) -> None:
    """Have all that is kept of an id removed at a time, unless it is put down by then, with a time of its own."""
    async with redis.pipeline(transaction=True) as pipe:
        put(pipe, "ZADD", keys.expiring(), by, id)
        put(pipe, "EXPIREAT", keys.expiring(), by + _LONG)
        await pipe.execute()


async def due(redis: Redis) -> list[str]:
    """Name some records whose time is over."""
    found = await command(redis, "ZRANGEBYSCORE", keys.expiring(), "-inf", int(time.time()), "LIMIT", 0, _DUE)
    return [name.decode() for name in found]


def _fields(stored: Any) -> dict[str, Any]:
    pairs = stored.items() if isinstance(stored, dict) else zip(stored[::2], stored[1::2], strict=True)
    return {name.decode(): orjson.loads(value) for name, value in pairs}
