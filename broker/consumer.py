"""The worker's end of the queue: take jobs, answer them, take over what the dead left."""

import logging
import math
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import BLOCK_MS, command, connect, group_is_gone, put
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import LANES, Job, Lane, Reply, decode_job, encode_job, encode_replies
from infinity_pool.broker.streams import Entry, entries_of

_MOST_DEAD = 1000  # dead letters of one model
_REMEMBERED = 24 * 3600  # s for which starts are, after the latest of any job
_MOST_ENTRIES = 512  # in one take, whatever they cost
_STAYS_EMPTY = 0.01  # s after a take that left nothing in which only few jobs can have come
_AT_ONCE = 0.001  # s in which a read comes back that found jobs waiting

logger = logging.getLogger(__name__)


class Delivery(NamedTuple):
    """
    A job in this worker's hands.

    `job` is None where the entry could not be read; `queued` and `deadline` are on this host's monotonic clock, in
    seconds; `orphan` says that another worker was given it first and died.
    """

    entry: bytes
    lane: Lane
    job: Job | None
    items: int
    cost: int
    size: int
    queued: float
    deadline: float | None
    orphan: bool = False


class Consumer:
    """
    Takes one model's jobs from its lanes, as one member of the group of its workers.

    Each lane is read on a connection of its own, by one task at a time, and a read is never cancelled: entries of a
    reply that nobody reads would stay pending on a healthy worker, which nobody reclaims.
    """

    def __init__(self, url: str, model: str, worker_id: str) -> None:
        self.model = keys.check_name(model)
        self.id = worker_id
        self._redis = connect(url)
        self._readers = {lane: connect(url, max_connections=1) for lane in LANES}
        self._streams = {lane: keys.jobs(model, lane) for lane in LANES}
        self._crowded = dict.fromkeys(LANES, False)
        self._empty_until = dict.fromkeys(LANES, -math.inf)  # when to look again rather than wait at once

    async def join(self) -> None:
        """Join the model's workers, as the first of them if need be."""
        for stream in self._streams.values():
            try:
                await self._redis.xgroup_create(stream, keys.GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def take(self, lane: Lane, budget: int) -> list[Delivery]:
        """
        Take jobs of one lane until `budget` tokens are spent, waiting up to BLOCK_MS for the first.

        Raises redis.RedisError on an outage; then `recover` must be called before the next take.
        """
        reader, stream = self._readers[lane], self._streams[lane]
        now, entries = 0, list[Entry]()
        if time.monotonic() > self._empty_until[lane]:
            now, entries = await self._run_take(reader, stream, budget)
        if not entries:
            asked = time.monotonic()
            if not (entries := await self._wait(reader, stream)):
                return []
            now = _added_ms(entries[0])  # it has just come
            if self._crowded[lane] or time.monotonic() - asked < _AT_ONCE:  # a lone one is run the sooner
                now, more = await self._run_take(reader, stream, budget - _read(entries[0])[0])
                entries += more
        deliveries = self._deliveries(lane, now, entries, orphan=False)
        emptied = sum(delivery.cost for delivery in deliveries) < budget
        self._empty_until[lane] = time.monotonic() + _STAYS_EMPTY if emptied else -math.inf
        self._crowded[lane] = len(entries) > 1
        return deliveries

    async def recover(self, lane: Lane, held: Collection[bytes]) -> list[Delivery]:
        """Give what this worker was sent and does not hold, joining the group anew if Redis lost it."""
        try:
            reply = await scripts.run(
                self._readers[lane], "pending", [self._streams[lane]], [keys.GROUP, self.id, *held]
            )
        except ResponseError as error:
            if not group_is_gone(error):
                raise
            await self.join()
            return []
        return self._deliveries(lane, *reply, orphan=False)

    async def dead(self, lane: Lane) -> list[str]:
        """Name the other consumers of a lane that have no heartbeat; the server looks, as all ask twice a second."""
        names = await scripts.run(self._redis, "dead", [self._streams[lane]], [keys.GROUP, keys.worker(self.model, "")])
        return [name for name in map(bytes.decode, names) if name != self.id]

    async def reap(self, lane: Lane, consumer: str, most: int = 64) -> list[Delivery]:
        """Take over up to `most` jobs of a consumer whose heartbeat is gone; remove it once it holds none."""
        reply = await scripts.run(
            self._redis,
            "reap",
            [self._streams[lane], keys.worker(self.model, consumer)],
            [keys.GROUP, consumer, self.id, most],
        )
        return self._deliveries(lane, *reply, orphan=True)

    async def start(self, delivery: Delivery) -> int:
        """Record that an orphan is about to be run, before it is; gives how often it was started, this time too."""
        key = keys.attempts(self.model)
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hincrby(key, delivery.entry, 1)
            pipe.expire(key, _REMEMBERED)  # its caller may have gone and taken the entry along, just before this
            starts, _ = await pipe.execute()
        return int(starts)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Put a job among the model's dead letters, the oldest of which make room."""
        assert delivery.job is not None
        fields = {"j": encode_job(delivery.job), "reason": reason}
        await self._redis.xadd(keys.dead(self.model), fields, maxlen=_MOST_DEAD, approximate=False)  # type: ignore[arg-type] # invariance of dict

    async def answer(self, answers: Sequence[tuple[Delivery, Reply]]) -> None:
        """
        Send replies, all of one listener's in one write, and only then forget their jobs.

        A crash between the two makes doubles, which a listener drops; the other order would lose answers.
        """
        channels: dict[str, list[Reply]] = {}
        for delivery, reply in answers:
            if delivery.job is not None:
                channels.setdefault(delivery.job.reply_to, []).append(reply)
        async with self._redis.pipeline(transaction=False) as pipe:
            for channel, replies in channels.items():
                # NOMKSTREAM: a listener that is gone took its channel along, and gets nothing that would stay for ever.
                put(pipe, "XADD", channel, "NOMKSTREAM", "*", "r", encode_replies(replies))
            outcomes = await pipe.execute(raise_on_error=False)
        for channel, outcome in zip(channels, outcomes, strict=True):
            if isinstance(outcome, ResponseError) and str(outcome).startswith("WRONGTYPE"):
                logger.error("%s is no reply channel; what was to go there is dropped", channel)
            elif isinstance(outcome, Exception):
                raise outcome
        await self.forget([delivery for delivery, _ in answers])

    async def forget(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs off the queue without a word: they are answered, or nobody wants them."""
        for lane in LANES:
            if mine := [delivery for delivery in deliveries if delivery.lane == lane]:
                counts = [value for one in mine for value in (one.entry, one.items, one.cost, one.size)]
                await scripts.run(
                    self._redis,
                    "finish",
                    [self._streams[lane], keys.waiting(self.model), keys.attempts(self.model)],
                    [keys.GROUP, lane, *counts],
                )

    async def leave(self) -> int:
        """Leave the group and close; gives how many jobs are left pending for others to take over."""
        left = 0
        for lane in LANES:
            left += int(await scripts.run(self._redis, "leave", [self._streams[lane]], [keys.GROUP, self.id]))
        await self.close()
        return left

    async def close(self) -> None:
        """Close the connections."""
        for redis in (self._redis, *self._readers.values()):
            await redis.aclose()

    async def _run_take(self, reader: Redis, stream: str, budget: int) -> tuple[int, list[Entry]]:
        now, entries = await scripts.run(reader, "take", [stream], [keys.GROUP, self.id, budget, _MOST_ENTRIES])
        return now, entries

    async def _wait(self, reader: Redis, stream: str) -> list[Entry]:
        reply = await command(
            reader, "XREADGROUP", "GROUP", keys.GROUP, self.id, "COUNT", 1, "BLOCK", BLOCK_MS, "STREAMS", stream, ">"
        )
        return entries_of(reply)

    def _deliveries(self, lane: Lane, now_ms: int, entries: list[Entry], *, orphan: bool) -> list[Delivery]:
        return [self._delivery(lane, entry, now_ms, orphan=orphan) for entry in entries if entry and entry[1]]

    def _delivery(self, lane: Lane, entry: Entry, now_ms: int, *, orphan: bool) -> Delivery:
        entry_id, _ = entry
        cost, items, data = _read(entry)
        try:
            job = decode_job(data)
            keys.check_replies(job.reply_to)
        except InvalidInput as error:
            logger.error("entry %r cannot be read and is passed over: %s", entry_id, error)
            job = None
        age_ms = now_ms - _added_ms(entry)
        queued = time.monotonic() - age_ms / 1000
        deadline = None if job is None or job.ttl_ms is None else queued + job.ttl_ms / 1000
        return Delivery(entry_id, lane, job, items, cost, len(data), queued, deadline, orphan)


def _added_ms(entry: Entry) -> int:
    """Give the server's time at which an entry was added; it is the first half of its id."""
    return int(entry[0].split(b"-")[0])


def _read(entry: Entry) -> tuple[int, int, bytes]:
    """Give an entry's cost, items and encoded job; nothing of one that another hand put into the stream."""
    _, fields = entry
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        return int(named[b"c"]), int(named[b"n"]), named[b"j"]
    except (KeyError, ValueError):
        return 0, 0, b""
