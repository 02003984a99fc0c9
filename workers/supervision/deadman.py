"""A worker's watch on itself: one that can do nothing more ends, so that whatever started it starts the next."""

import asyncio
import faulthandler
import logging
import time
from collections.abc import Awaitable, Callable

from infinity_pool.broker.presence import EXPIRY, HEARTBEAT
from infinity_pool.workers.supervision.lifeline import leave_at_once

EXIT_STUCK = 75
"""The exit code of a worker that was stuck (EX_TEMPFAIL of sysexits.h): the next may do better."""

_GRACE = 3.0  # s; a supervisor's watchdog needs less, and what hung on the queue is written soon after an outage
_FAREWELL = 1.0  # s to tell the queue

logger = logging.getLogger(__name__)


class Deadman:
    """
    Ends this process when it has been `stuck` for a moment, or when its event loop has stood still for `patience` s.

    While the queue has not been `heard` of for an expiry nobody is stuck: jobs may be waiting to be answered only. A
    loop that stands still is noticed by a timer outside of Python, which needs no lock of it, and which writes to
    stderr where each thread stands. `farewell` deletes the heartbeat, so that others take over at once.
    """

    def __init__(
        self,
        patience: float,
        stuck: Callable[[], bool],
        heard: Callable[[], float],
        farewell: Callable[[], Awaitable[None]],
    ) -> None:
        self._patience = patience
        self._stuck = stuck
        self._heard = heard
        self._farewell = farewell

    async def run(self) -> None:
        """Look at each heartbeat, until cancelled."""
        since = None
        try:
            while True:
                faulthandler.dump_traceback_later(self._patience + _GRACE, exit=True)
                now = time.monotonic()
                stuck = self._stuck() and now - self._heard() < EXPIRY
                since = (since or now) if stuck else None
                if since and now - since >= _GRACE:
                    await self._end()
                await asyncio.sleep(HEARTBEAT)
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def _end(self) -> None:
        """End at once: the thread that is stuck could not be waited for."""
        logger.critical("stuck, with no batch finished for more than %g s: this worker ends", self._patience)
        await asyncio.wait([asyncio.ensure_future(self._farewell())], timeout=_FAREWELL)
        leave_at_once(EXIT_STUCK)
