"""How large a batch may be at this moment: less after the device ran out of memory, and in time as before."""

import logging
from dataclasses import replace

from infinity_pool.workers.loop.batching import Budget

_CALM = 200  # batches without trouble after which more is tried
_STEP = 1.25  # by which more is tried

logger = logging.getLogger(__name__)


class Allowance:
    """A budget that shrinks when it was too much and grows back."""

    def __init__(self, full: Budget) -> None:
        self.now = full
        self._full = full
        self._calm = 0

    def was_too_much(self, padded: int) -> None:
        """Allow half of what did not fit, at most; it is logged when the trouble begins."""
        if self.now == self._full:
            logger.warning("the device ran out of memory on a batch of %d tokens; batches are made smaller", padded)
        self._calm = 0
        self.now = replace(self.now, tokens=max(1, min(self.now.tokens, padded) // 2))

    def went_well(self) -> None:
        """Count a batch that fitted, and now and then allow more again."""
        if self.now == self._full:
            return
        self._calm += 1
        if self._calm >= _CALM:
            self._calm = 0
            self.now = replace(self.now, tokens=min(self._full.tokens, int(self.now.tokens * _STEP) + 1))
