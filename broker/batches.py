"""Batches of requests: what is known of each, and which replica runs it."""

import dataclasses
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson
from redis.asyncio import Redis

from infinity_pool.broker import keys, records, scripts
from infinity_pool.broker.connection import command, put
from infinity_pool.broker.errors import Overloaded
from infinity_pool.broker.records import Record

KIND = "batches"
MOST_OPEN = 200
"""Batches of one owner that have not ended."""

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
ENDED: tuple[Status, ...] = ("failed", "completed", "expired", "cancelled")
CANCELLABLE: tuple[Status, ...] = ("validating", "in_progress")

CLAIM_MS = 5000
"""How long a replica that says nothing keeps a batch."""


@dataclass(frozen=True)
class Batch:
    """
    A batch of an owner, who is a key's name; times are in seconds since 1970.

    Of its input, `offset` bytes are answered, in parts that are put down; they are `completed` and `failed` requests.
    """

    id: str
    owner: str
    input_file_id: str
    endpoint: str
    completion_window: str
    created_at: int
    expires_at: int
    kept_until: int
    status: Status = "validating"
    metadata: dict[str, str] | None = None
    output_seconds: int | None = None
    """How long its files are kept, where that is asked for."""
    model: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    """What the completed ones had run."""
    offset: int = 0
    broken: int = 0
    """How often it came to an end that nobody knows the reason of."""
    stopped: str = ""
    """Why the rest of the requests was not run: an error's code."""
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: list[dict[str, Any]] | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None


class ClaimLost(Exception):
    """Another replica runs the batch, or it is gone."""


class Waiting(NamedTuple):
    """A batch that has not ended, and its owner."""

    id: str
    owner: str


def new_id() -> str:
    """Make the id of a batch."""
    return f"batch_{uuid.uuid4().hex}"


def moved(status: Status) -> dict[str, Any]:
    """Give the fields that say that a batch comes into a state now."""
    return {"status": status, f"{status}_at": int(time.time())}


async def add(redis: Redis, batch: Batch) -> None:
    """Put down a new batch, to be run; raises Overloaded if its owner has too many that have not ended."""
    if sum(other.owner == (batch.owner or records.NOBODY) for other in await waiting(redis)) >= MOST_OPEN:
        raise Overloaded(f"{MOST_OPEN} batches of this key have not ended; more can be made then", retry_after=60.0)
    fields = {name: value for name, value in dataclasses.asdict(batch).items() if value is not None}
    await records.add(redis, KIND, Record(batch.id, fields), batch.owner, batch.kept_until, opened=True)


async def get(redis: Redis, id: str) -> Batch | None:
    """Give a batch, None if there is none or its time is over."""
    found = await records.get(redis, id) if id.startswith("batch_") else None
    batch = records.read(Batch, found) if found else None
    return batch if batch and batch.kept_until > time.time() else None


async def page(redis: Redis, owner: str, after: str | None, limit: int) -> tuple[list[Batch], str | None]:
    """Give batches as `records.page` does, the newest first."""
    found, more = await records.page(redis, KIND, owner, after, limit)
    return [records.read(Batch, record) for record in found], more


async def remove(redis: Redis, batch: Batch) -> None:
    """Forget a batch."""
    await records.remove(redis, KIND, batch.id, batch.owner)


async def waiting(redis: Redis) -> list[Waiting]:
    """Name all batches that have not ended, the oldest first."""
    return [
        Waiting(*member.decode().split(" ")) for member in await command(redis, "ZRANGE", keys.open_batches(), 0, -1)
    ]


async def turns(redis: Redis) -> tuple[list[Waiting], Counter[str]]:
    """
    Name the batches that no replica runs, and count those that are run, by their owner.

    Those come first whose owner has fewest that are run, then those that have waited longest.
    """
    found = await waiting(redis)
    if not found:
        return [], Counter()
    claims = await command(redis, "MGET", *(keys.batch_claim(one.id) for one in found))
    run = Counter(one.owner for one, claim in zip(found, claims, strict=True) if claim)
    free = [one for one, claim in zip(found, claims, strict=True) if not claim]
    before, places = run.copy(), {}
    for place, one in enumerate(free):
        places[one] = before[one.owner], place
        before[one.owner] += 1
    return sorted(free, key=places.__getitem__), run


async def defer(redis: Redis, one: Waiting) -> None:
    """Put a batch behind all others that wait."""
    await command(redis, "ZADD", keys.open_batches(), "XX", time.time_ns() // 1000, " ".join(one))


async def uses(redis: Redis, file_id: str) -> str | None:
    """Give the id of a batch that has not ended and reads a file."""
    found = await waiting(redis)
    async with redis.pipeline(transaction=False) as pipe:
        for one in found:
            put(pipe, "HGET", keys.record(one.id), "input_file_id")
        read = await pipe.execute() if found else []
    return next((one.id for one, each in zip(found, read, strict=True) if each == orjson.dumps(file_id)), None)


async def cancel(redis: Redis, id: str) -> None:
    """Have a batch stop, where it can."""
    await _change(redis, id, "", moved("cancelling"), CANCELLABLE)


async def close(redis: Redis, one: Waiting) -> None:
    """Forget how a batch that has ended was run."""
    async with redis.pipeline(transaction=True) as pipe:
        put(pipe, "ZREM", keys.open_batches(), " ".join(one))
        put(pipe, "DEL", keys.batch_parts(one.id), keys.batch_claim(one.id))
        await pipe.execute()


class Claim:
    """A replica's hold on a batch that it runs."""

    def __init__(self, redis: Redis, one: Waiting) -> None:
        self.one = one
        self.token = uuid.uuid4().hex[:12]
        self._redis = redis

    async def take(self) -> bool:
        """Take the batch; gives whether it was free."""
        return bool(await command(self._redis, "SET", keys.batch_claim(self.one.id), self.token, "NX", "PX", CLAIM_MS))

    async def read(self) -> Batch | None:
        """Give the batch."""
        return await get(self._redis, self.one.id)

    async def change(
        self, fields: dict[str, Any], parts: Sequence[str] = (), expected: Collection[Status] = ()
    ) -> Status:
        """
        Change fields and add parts, if it is in one of the `expected` states, or in any; and prolong the claim.

        Gives the state it is in now. Raises ClaimLost.
        """
        status = await _change(self._redis, self.one.id, self.token, fields, expected, parts)
        if not status:
            raise ClaimLost(self.one.id)
        return status

    async def broke(self) -> int:
        """Count that the work on the batch broke; gives how often it has. Raises ClaimLost."""
        batch = await self.read()
        times = batch.broken + 1 if batch else 0
        await self.change({"broken": times})
        return times

    async def parts(self) -> list[str]:
        """Name the parts that were added, in order."""
        return [name.decode() for name in await command(self._redis, "LRANGE", keys.batch_parts(self.one.id), 0, -1)]

    async def leave(self) -> None:
        """Let another replica take the batch at once."""
        if await command(self._redis, "GET", keys.batch_claim(self.one.id)) == self.token.encode():
            await command(self._redis, "DEL", keys.batch_claim(self.one.id))

    async def close(self) -> None:
        """Forget how the batch, which has ended, was run."""
        await close(self._redis, self.one)


async def _change(
    redis: Redis, id: str, token: str, fields: dict[str, Any], expected: Collection[Status], parts: Sequence[str] = ()
) -> Status | None:
    named = [keys.record(id), keys.batch_claim(id), keys.batch_parts(id)]
    states = b"".join(map(orjson.dumps, expected))
    args = [token, CLAIM_MS, states, len(fields), *records.encode(fields), *parts]
    status = await scripts.run(redis, "change_batch", named, args)
    return orjson.loads(status) if status else None
