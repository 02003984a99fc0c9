"""Takes batches that nobody runs, a few at a time, and removes what its time is over."""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web
from redis.exceptions import RedisError

from infinity_pool.api.batches import ledger
from infinity_pool.api.batches.inside import Inside
from infinity_pool.api.batches.run import Means, Run
from infinity_pool.api.batches.storage import Storage, place_of
from infinity_pool.api.keys import METRICS, SETTINGS, TENANTS
from infinity_pool.broker import batches, files, records
from infinity_pool.broker.batches import ENDED, Claim, ClaimLost, Waiting, moved
from infinity_pool.broker.connection import Backoff, connect, end, is_outage
from infinity_pool.broker.errors import Unavailable

_LOOK = 0.5  # s between two looks for batches
_SWEEP = 60.0  # s between two looks for what is to be removed
_TURN = 60.0  # s after which a batch makes room for one of another key, or for any if it gets nowhere
_MOST_BROKEN = 3
_BROKEN = "this batch broke the server that ran it, whose log knows more"
_LATER = 3600  # s after which what cannot be removed yet is looked at again
_CONNECTIONS = 16

logger = logging.getLogger(__name__)


class Runner:
    """Files and batches of an application; an async context manager."""

    def __init__(self, app: web.Application, root: str) -> None:
        self._app = app
        self.storage = Storage(root)
        self._runs: dict[asyncio.Task[None], _Hand] = {}
        self._trouble = Backoff()
        self._swept = 0.0
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        settings = self._app[SETTINGS]
        await self.storage.check()
        self.redis = connect(settings.redis_url, max_connections=_CONNECTIONS)
        self.inside = Inside(self._app)
        self._means = Means(settings, self.redis, self.storage, self._app[TENANTS].keyring, self.inside)
        self._looking = asyncio.create_task(self._keep_looking(), name="infinity batches")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        await self.redis.aclose()

    def look_soon(self) -> None:
        """Look for batches at once, as there is a new one."""
        self._news.set()

    async def stop(self, app: web.Application | None = None) -> None:
        """Leave all batches to others, as far as they are put down."""
        await end(self._looking)
        for run in list(self._runs):
            run.cancel()
        for run in list(self._runs):
            await end(run)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._take_some()
                await self._sweep()
                self._trouble.reset()
            except Exception as error:
                if is_outage(error):
                    self._trouble.failed("look for batches", error)
                else:
                    logger.error("files cannot be looked after now", exc_info=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._news.wait()
            self._news.clear()

    async def _take_some(self) -> None:
        room = self._app[SETTINGS].batches_at_once - len(self._runs)
        waiting, run = await batches.turns(self.redis)
        if waiting and not room:
            await self._make_room(waiting[0].owner, run)
        for one in waiting[:room]:
            hand = _Hand(Claim(self.redis, one))
            if await hand.claim.take():
                task = asyncio.create_task(self._run(hand), name=f"infinity {one.id}")
                self._runs[task] = hand
                task.add_done_callback(self._ended)
        self._app[METRICS].runs_batches(len(self._runs))

    async def _make_room(self, owner: str, run: Counter[str]) -> None:
        """Leave a batch that has had its turn, for one of an owner who has fewer that are run, or for any."""
        for task, hand in self._runs.items():
            others = run[hand.claim.one.owner] > run[owner]
            if time.monotonic() > hand.since + _TURN and (others or (hand.run and hand.run.idle > _TURN)):
                await batches.defer(self.redis, hand.claim.one)
                task.cancel()
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._runs.pop(task)
        self._news.set()
        self._app[METRICS].runs_batches(len(self._runs))

    async def _run(self, hand: "_Hand") -> None:
        """Run a batch, and leave it as it should be found, whatever happens."""
        claim = hand.claim
        try:
            await self._to_its_end(hand)
        except asyncio.CancelledError:
            await claim.leave()
            raise
        except ClaimLost:
            logger.info("%s is run by another replica, or gone", claim.one.id)
        except Exception as error:  # noqa: BLE001 # it is logged there
            await self._broke(hand, error)

    async def _broke(self, hand: "_Hand", error: Exception) -> None:
        """
        Have a batch tried again behind all others, when its claim, which is kept so long, expires.

        One that nobody knows why it broke so often has failed: it must not be in the way of others for ever.
        """
        known = is_outage(error) or isinstance(error, Unavailable)
        told, level = "%s stopped, and goes on in a moment: %s", logging.WARNING if known else logging.ERROR
        logger.log(level, told, hand.claim.one.id, error, exc_info=None if known else error)
        with suppress(ClaimLost, RedisError, OSError, TimeoutError):
            await batches.defer(self.redis, hand.claim.one)
            if not known and await hand.claim.broke() >= _MOST_BROKEN:
                fault = {"code": "server_error", "line": None, "message": _BROKEN, "param": None}
                await hand.claim.change({**moved("failed"), "errors": [fault]})

    async def _to_its_end(self, hand: "_Hand") -> None:
        claim = hand.claim
        batch = await claim.read()
        if batch is not None and batch.status not in ENDED:
            logger.info("%s of %s is run", batch.id, batch.owner or "a caller without a key")
            hand.run = Run(self._means, claim, batch)
            ended = await hand.run.run()
            self._app[METRICS].batch_ended(ended)
            logger.info("%s is %s", batch.id, ended)
        await self.storage.remove(ledger.folder_of(claim.one.id))
        await claim.close()

    async def _sweep(self) -> None:
        """Remove files and batches whose time is over."""
        if time.monotonic() < self._swept:
            return
        self._swept = time.monotonic() + _SWEEP
        while due := await records.due(self.redis):
            for each in due:
                try:
                    await self._remove(each)
                except Unavailable as error:
                    logger.warning("%s cannot be removed, and is looked at again in an hour: %s", each, error)
                    await records.expect(self.redis, each, int(time.time()) + _LATER)

    async def _remove(self, id: str) -> None:
        found = await records.get(self.redis, id)
        owner = found.fields["owner"] if found else ""
        if await batches.uses(self.redis, id):
            await records.expect(self.redis, id, int(time.time()) + _LATER)
        elif id.startswith("batch_"):
            await self.storage.remove(ledger.folder_of(id))
            await batches.close(self.redis, Waiting(id, owner or records.NOBODY))
            await records.remove(self.redis, batches.KIND, id, owner)
        else:
            await self.storage.remove(place_of(id))
            await records.remove(self.redis, files.KIND, id, owner)


@dataclass(eq=False)
class _Hand:
    """A batch that this replica has."""

    claim: Claim
    run: Run | None = None
    since: float = field(default_factory=time.monotonic)


RUNNER = web.AppKey("runner", Runner)
"""The files and batches of an application that has any."""
