"""Receives the replies of one listener and hands each to whoever waits for it."""

import logging
import time
import uuid
from collections.abc import Callable, Sequence

from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import BLOCK_MS, Backoff, identify, is_outage, put
from infinity_pool.broker.errors import InfinityError
from infinity_pool.broker.messages import Failure, Reply, replies_in
from infinity_pool.broker.outbox import Ticket
from infinity_pool.broker.streams import entries_of

CHANNEL_EXPIRY = 15.0
"""Seconds after its last heartbeat at which a reply channel, and what it holds, is gone."""

_MOST_ENTRIES = 64  # in one read

logger = logging.getLogger(__name__)


class Inbox:
    """
    One reply channel, and the jobs whose replies it awaits.

    The waiting caller owns its job: where Redis may have lost data, `on_loss` is called with every job still waiting,
    to be queued again under the same id. What then comes twice is dropped by that id.
    """

    def __init__(self, redis: Redis, on_loss: Callable[[list[Ticket]], None]) -> None:
        self.key = keys.replies(uuid.uuid4().hex)
        self.losses = 0
        """How often the queue may have lost data."""
        self._redis = redis
        self._on_loss = on_loss
        self._tickets: dict[str, Ticket] = {}
        self._last = b"0"
        self._run_id = ""
        self._closing = False

    def __len__(self) -> int:
        return len(self._tickets)

    def expect(self, ticket: Ticket) -> None:
        """Await a job's reply."""
        self._tickets[ticket.job.id] = ticket

    def forget(self, ticket: Ticket) -> None:
        """Await it no more."""
        self._tickets.pop(ticket.job.id, None)

    def fail(self, error: InfinityError) -> None:
        """Settle all that waits with an error."""
        for ticket in list(self._tickets.values()):
            ticket.fail(error)

    async def keep(self) -> None:
        """Keep the channel alive; called with each heartbeat, and first of all."""
        if await scripts.run(self._redis, "channel", [self.key], [int(CHANNEL_EXPIRY * 1000)]):
            self._last = b"0"
            self._lost()
        if not self._run_id:
            self._run_id = (await identify(self._redis)).run_id

    async def listen(self) -> None:
        """Hand out replies until told to stop; an outage is waited out."""
        backoff, was_away = Backoff(), False
        while not self._closing:
            try:
                if was_away:
                    await self._reconnect()
                await self._read()
                was_away = False
                backoff.reset()
            except Exception as error:
                if not is_outage(error):
                    raise
                backoff.failed("read replies", error)
                was_away = True
                await backoff.pause()

    async def close(self) -> None:
        """Have `listen` return, and remove the channel."""
        self._closing = True
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                put(pipe, "XADD", self.key, "NOMKSTREAM", "*", "closing", "")  # ends a read that is blocked
                pipe.delete(self.key)
                await pipe.execute()
        except Exception as error:
            if not is_outage(error):
                raise
            logger.debug("the reply channel is left to expire: %s", error)

    async def _read(self) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            put(pipe, "XTRIM", self.key, "MINID", self._after(self._last))
            put(pipe, "XREAD", "COUNT", _MOST_ENTRIES, "BLOCK", BLOCK_MS, "STREAMS", self.key, self._last)
            _, reply = await pipe.execute()
        for entry, fields in entries_of(reply):
            self._last = entry
            self._settle(replies_in(fields))

    @staticmethod
    def _after(entry: bytes) -> bytes:
        """Give the first id after an entry's: what XTRIM may keep."""
        ms, _, number = entry.partition(b"-")
        return b"%s-%d" % (ms, int(number or 0) + 1)

    def _settle(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            ticket = self._tickets.get(reply.job_id)
            if ticket is None or ticket.future.done():
                continue  # its caller gave up, or it came twice
            if isinstance(reply, Failure):
                ticket.fail(reply.error)
            else:
                ticket.future.set_result(reply)

    async def _reconnect(self) -> None:
        """After an outage: read again from the beginning, and if another server answers, queue again what waits."""
        found = (await identify(self._redis)).run_id
        self._last = b"0"
        if self._run_id and found != self._run_id:
            self._lost()
        self._run_id = found

    def _lost(self) -> None:
        self.losses += 1
        queued = [ticket for ticket in self._tickets.values() if ticket.entry is not None and not ticket.future.done()]
        if queued:
            logger.warning("the queue may have lost data: %d jobs are queued again", len(queued))
            for ticket in queued:
                ticket.since = time.monotonic()
            self._on_loss(queued)
