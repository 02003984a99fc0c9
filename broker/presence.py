"""Which workers serve which model, by their heartbeats, and what waits for them."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import msgpack
from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import command
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import LANES, Lane

HEARTBEAT = 0.5
"""Seconds between two heartbeats."""

EXPIRY = 2.0
"""Seconds after its last heartbeat at which a worker is dead."""

REFUSAL_EXPIRY = 60.0
"""Seconds for which it can be read why a worker could not serve."""

_FORGET_WORKER_MS = 60_000
_FORGET_MODEL_MS = 24 * 3600 * 1000

logger = logging.getLogger(__name__)

State = Literal["loading", "ready", "stuck", "draining", "refused"]


class Mixed(InvalidInput):
    """A worker's vectors differ from those of the others of its name."""


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """
    What a worker says of itself with each heartbeat.

    Speeds are smoothed, counts are since its start; `stalled` is for how many seconds it has had work and finished no
    batch, and it calls itself stuck after its --stall-timeout. `cosine` is, in fewer bits, the least to its own
    float32 that some texts had when it was made. `device_share` is its weight on a device that is shared, 0 where it
    takes no turns; `memory` is what it has of its device, in bytes. One that is refused says why as its `stage`.
    """

    id: str
    model: str
    state: State = "loading"
    stage: str = ""
    progress: float | None = None
    host: str = ""
    pid: int = 0
    family: str = ""
    tasks: list[str] = field(default_factory=list)
    modalities: list[str] = field(default_factory=lambda: ["text"])
    labels: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    engine: str = ""
    device: str = ""
    dtype: str = ""
    embedding_dtype: str = "float32"
    cosine: float | None = None
    max_length: int = 0
    dimensions: int | None = None
    batch_tokens: int = 0
    fingerprint: str = ""
    licence: str = ""
    tokens_per_second: float = 0.0
    tokens_per_char: float = 0.3
    max_chars: int = 0
    items_done: int = 0
    tokens_done: int = 0
    device_seconds: float = 0.0
    device_share: float = 0.0
    memory: int = 0
    jobs_held: int = 0
    stalled: float = 0.0

    def to_wire(self) -> bytes:
        """Give the bytes that the heartbeat stores."""
        data: bytes = msgpack.packb(asdict(self))
        return data

    @classmethod
    def from_wire(cls, data: bytes) -> "WorkerInfo":
        """Read a heartbeat; fields of a newer version are passed over. Raises InvalidInput on what is none."""
        known = {item.name for item in fields(cls)}
        try:
            return cls(**{name: value for name, value in msgpack.unpackb(data).items() if name in known})
        except (AttributeError, TypeError, ValueError, msgpack.UnpackException) as error:
            raise InvalidInput(f"not a heartbeat: {error!r}") from error


@dataclass(frozen=True)
class Waiting:
    """What is queued for a model or held by its workers."""

    items: int = 0
    tokens: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ModelStatus:
    """A model that is served, or was within a day; `dead` counts its dead letters."""

    name: str
    workers: list[WorkerInfo]
    waiting: dict[Lane, Waiting]
    dead: int = 0

    @property
    def ready(self) -> bool:
        """Whether a worker could take a job now."""
        return any(worker.state == "ready" for worker in self.workers)


def refused(info: WorkerInfo, reason: str) -> WorkerInfo:
    """Give the word that a worker leaves which cannot serve; its id is another, since the worker's is forgotten."""
    return replace(info, id=f"{info.id}-refused", state="refused", stage=reason, progress=None, fingerprint="")


async def beat(redis: Redis, info: WorkerInfo, *, mix: bool = False, expiry: float = EXPIRY) -> None:
    """
    Tell that a worker is alive, and what it is; it counts so for `expiry` seconds.

    Raises Mixed if the living workers of its name have another fingerprint, unless it may `mix` with them.
    """
    now, theirs = await scripts.run(
        redis,
        "beat",
        [keys.worker(info.model, info.id), keys.workers(info.model), keys.fingerprint(info.model)],
        [info.to_wire(), int(expiry * 1000), info.id, _FORGET_WORKER_MS, "" if mix else info.fingerprint],
    )
    if theirs:
        raise Mixed(
            f"the living workers of {info.model} have the fingerprint {theirs.decode()}, this one has "
            f"{info.fingerprint}: their vectors would mix; give it another name, or --allow-mixed"
        )
    async with redis.pipeline(transaction=False) as pipe:
        pipe.zadd(keys.models(), {info.model: now})
        pipe.zremrangebyscore(keys.models(), "-inf", now - _FORGET_MODEL_MS)
        await pipe.execute()


async def forget_worker(redis: Redis, model: str, worker_id: str) -> None:
    """Declare a worker dead at once, as its supervisor may, so that the living take over its jobs."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(keys.worker(model, worker_id))
        pipe.zrem(keys.workers(model), worker_id)
        await pipe.execute()


async def require_writes(redis: Redis) -> None:
    """Write something, as a heartbeat does; raises redis.RedisError where none can be, and silence means nothing."""
    await redis.set(keys.written(), "", px=int(EXPIRY * 1000))


async def is_heard(redis: Redis, model: str, worker_id: str) -> bool:
    """
    Say whether a worker's heartbeats arrive; one that cannot write its own must not tell others' deaths by theirs.

    It is heard no more well before it counts as dead: as soon as two heartbeats are missing.
    """
    return int(await redis.pttl(keys.worker(model, worker_id))) > 1000 * (EXPIRY - 2 * HEARTBEAT)


async def read_model(redis: Redis, name: str) -> ModelStatus:
    """Ask for one model's workers, what waits for them, and how many jobs they gave up."""
    names = [keys.workers(name), keys.waiting(name), keys.dead(name)]
    said, counts, dead = await scripts.run(redis, "status", names, [keys.worker(name, "")])
    return ModelStatus(name, sorted(_readable(said), key=lambda worker: worker.id), _waiting(counts), dead)


def _readable(said: Iterable[bytes]) -> Iterator[WorkerInfo]:
    """Read heartbeats, but for those that another hand wrote."""
    for data in said:
        try:
            yield WorkerInfo.from_wire(data)
        except InvalidInput as error:
            logger.warning("a heartbeat cannot be read and is passed over: %s", error)


async def read_models(redis: Redis) -> list[ModelStatus]:
    """Ask for every model that is served, or was within a day, by name."""
    names = sorted(name.decode() for name in await command(redis, "ZRANGE", keys.models(), 0, -1))
    return list(await asyncio.gather(*(read_model(redis, name) for name in names)))


def merged(workers: Iterable[WorkerInfo]) -> WorkerInfo | None:
    """Give one worker that stands for all that are ready, with their speeds added up; None if there is none."""
    ready = [worker for worker in workers if worker.state == "ready"]
    if not ready:
        return None
    return replace(ready[0], tokens_per_second=sum(worker.tokens_per_second for worker in ready))


def _waiting(counts: list[bytes]) -> dict[Lane, Waiting]:
    pairs: dict[str, Any] = {counts[i].decode(): int(counts[i + 1]) for i in range(0, len(counts), 2)}
    units = [item.name for item in fields(Waiting)]
    return {lane: Waiting(*(max(0, pairs.get(f"{lane}:{unit}", 0)) for unit in units)) for lane in LANES}
