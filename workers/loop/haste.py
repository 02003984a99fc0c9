"""Which batches are kept short, since somebody may come while they run who should not have to wait for a long one."""

import math
import time

from infinity_pool.broker.messages import LANES, Lane

_LASTS = 5.0  # s after one came for whom batches are short


class Haste:
    """
    Remembers who came of late.

    Bulk batches are short while online jobs come, and those of a lane while jobs come that go ahead of others in it.
    """

    def __init__(self) -> None:
        self._came = dict.fromkeys(LANES, -math.inf)

    def came(self, lane: Lane, *, ahead: bool) -> None:
        """Take note of a job that is in line now."""
        now = time.monotonic()
        if lane == "online":
            self._came["bulk"] = now
        if ahead:
            self._came[lane] = now

    def lanes(self) -> set[Lane]:
        """Name the lanes whose batches are short at this moment."""
        since = time.monotonic() - _LASTS
        return {lane for lane, came in self._came.items() if came > since}
