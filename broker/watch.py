"""What a producer knows of the models: a snapshot of who serves them, looked at about once a second."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis

from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.errors import ModelNotFound, Unavailable
from infinity_pool.broker.messages import Lane
from infinity_pool.broker.presence import ModelStatus, WorkerInfo, merged, read_models
from infinity_pool.broker.splitting import Limits

_LONGEST_WAIT = 60.0  # s, in Retry-After
_PATIENCE = 3.5  # s; a queue that hangs is as good as away
_REMEMBERED = 60.0  # s; a model that the queue knows no more may come back, as after a loss of its data

logger = logging.getLogger(__name__)


class Watch:
    """A snapshot of the models that is fresh enough to refuse what nobody could answer."""

    def __init__(self, redis: Redis) -> None:
        self.status: Mapping[str, ModelStatus] = {}
        self._redis = redis
        self._best: dict[str, WorkerInfo] = {}
        self._seen: dict[str, float] = {}
        self._refreshing: asyncio.Task[None] | None = None

    def best(self, model: str) -> WorkerInfo | None:
        """Give one worker that stands for all of a model's that are ready; None if none is."""
        return self._best.get(model)

    def limits(self, model: str) -> Limits:
        """Give what the model's workers publish for estimates and cuts."""
        best = self._best.get(model)
        return Limits(best.tokens_per_char, best.max_length, best.max_chars) if best else Limits()

    def retry_after(self, model: str, lane: Lane) -> float:
        """Say in how many seconds a lane's next job will have its turn, by the speed that the workers measure."""
        best, status = self._best.get(model), self.status.get(model)
        if not (best and status and best.tokens_per_second):
            return 1.0
        before = status.waiting.values() if lane == "bulk" else [status.waiting["online"]]
        tokens = sum(waiting.tokens for waiting in before)
        return min(_LONGEST_WAIT, max(1.0, tokens / best.tokens_per_second))

    async def labels(self, model: str) -> Sequence[str]:
        """Name a classifier's labels; raises Unavailable if none of its workers is ready any more."""
        if model not in self._best:
            await self.refresh_soon()
        if model not in self._best:
            raise Unavailable(f"no worker of {model} is ready now", retry_after=2.0)
        return self._best[model].labels

    async def check(self, model: str, *, awaited: bool) -> None:
        """
        Refuse what nobody could answer; `awaited` says that someone waits, so that a worker must be alive now.

        Raises ModelNotFound, with the names that there are, or Unavailable.
        """
        if model not in self._best:
            try:
                await self.refresh_soon()
            except Unavailable:
                if not self.status:  # what was known last will do: the queue may be back when the job is written
                    raise
        status = self.status.get(model)
        if status is None and model not in self._seen:
            names = ", ".join(self.status) or "none"
            raise ModelNotFound(f"no model {model[:256]!r} is served here; there is: {names}", param="model")
        if status is None or (awaited and not status.workers):
            raise Unavailable(f"no worker of {model} is alive now", retry_after=2.0)

    async def refresh_soon(self) -> None:
        """Look now, in one look with all others who ask; raises Unavailable if the queue cannot be reached."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self.refresh(), name="infinity refresh")
            self._refreshing.add_done_callback(_seen)
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(self._refreshing)
        except Exception as error:
            if not is_outage(error):
                raise
            raise Unavailable("the queue cannot be reached now", retry_after=1.0) from error

    async def refresh(self) -> None:
        """Look now; raises redis.RedisError on an outage, and the last snapshot stays."""
        found = {model.name: model for model in await read_models(self._redis)}
        now = time.monotonic()
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen < _REMEMBERED}
        self._seen |= dict.fromkeys(found, now)
        self.status = found
        self._best = {name: best for name, model in found.items() if (best := merged(model.workers))}


def _seen(task: asyncio.Task[None]) -> None:
    """Take note of how a look ended, even where all who asked for it have gone."""
    if not task.cancelled():
        task.exception()
