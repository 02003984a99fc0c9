"""Runs items in calls of several, each of which fails alone: the lower half of what `map` of a client does."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from infinity_pool.broker.connection import Backoff
from infinity_pool.broker.errors import (
    Forbidden,
    InfinityError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
)
from infinity_pool.broker.messages import Item, Result

_PATIENCE = 0.01  # s that the first of a few documents waits for more
_LONGEST_PAUSE = 30.0  # s, whatever a server that has too much to do asks for
_OF_AN_ITEM = (None, "input", "documents", "query", "text_1", "text_2")  # params of errors that one item may cause

Submit = Callable[[Sequence[Item]], Awaitable[Result]]
User = TypeVar("User")


class Work(Generic[User]):
    """An item that is open, and whoever waits for it."""

    __slots__ = ("done", "item", "key", "output", "size", "tokens", "users")

    def __init__(self, item: Item, key: Hashable) -> None:
        self.item = item
        self.key = key
        self.size = len(item) if hasattr(item, "__len__") else 1
        self.users: list[User] = []
        self.done = False
        self.output: Any = None  # of what is done, or its error
        self.tokens = 0


class Chunks(Generic[User]):
    """
    Puts works through `submit`, up to `size` in a call, and hands each to `settle` with its output or its error.

    `start` is given what must run beside; what concerns all is raised there. Where `waits`, what passes is waited out.
    """

    def __init__(
        self,
        submit: Submit,
        size: int,
        settle: Callable[[Work[User], Any, int], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
        *,
        waits: bool,
    ) -> None:
        self._submit = submit
        self._size = size
        self._settle = settle
        self._start = start
        self._waits = waits
        self._works: list[Work[User]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is in line for the next call."""
        return not self._works

    def put(self, work: Work[User]) -> None:
        """Put an item in line for the next call, which waits a moment for more of them."""
        self._works.append(work)
        if len(self._works) >= self._size:
            self.launch()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self.launch)

    def launch(self) -> None:
        """Run what is in line, now."""
        self.close()
        if self._works:
            works, self._works = self._works, []
            self._start(self._run(works))

    def close(self) -> None:
        """Wait for no more."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def _run(self, works: list[Work[User]]) -> None:
        """Run some items; where that fails, without the culprit, or by halves until it stands alone."""
        try:
            result = await self._ask([work.item for work in works])
        except InfinityError as error:
            if _concerns_all(error):
                raise
            for part in self._without(works, error):
                await self._run(part)
            return
        count = len(works)
        for place, work in enumerate(works):
            tokens = result.tokens * (place + 1) // count - result.tokens * place // count
            self._settle(work, result.outputs[place], tokens)

    def _without(self, works: list[Work[User]], error: InfinityError) -> list[list[Work[User]]]:
        """Settle the one at fault, and give what is to be run again."""
        culprit = 0 if len(works) == 1 else error.item
        if culprit is None or not 0 <= culprit < len(works):
            middle = len(works) // 2
            return [works[:middle], works[middle:]]
        error.item = None  # a place in a job, which tells the caller nothing
        self._settle(works[culprit], error, 0)
        rest = [*works[:culprit], *works[culprit + 1 :]]
        return [rest] if rest else []

    async def _ask(self, items: Sequence[Item]) -> Result:
        backoff = Backoff()
        while True:
            try:
                return await self._submit(items)
            except (Unavailable, Overloaded) as error:
                if not self._waits or isinstance(error, QuotaExceeded):  # which would be until tomorrow
                    raise
                await asyncio.sleep(min(error.retry_after or 0.0, _LONGEST_PAUSE))
            await backoff.pause()


def _concerns_all(error: InfinityError) -> bool:
    """Whether any other document would fail alike: of a model, a key or an option."""
    if isinstance(error, ModelNotFound | Unauthorized | Forbidden | QuotaExceeded):
        return True
    return isinstance(error, InvalidInput) and error.item is None and error.param not in _OF_AN_ITEM
