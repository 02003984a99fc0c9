"""One batch from its input to its output; begun anew, by whichever replica, it goes on where it was."""

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from infinity_pool.api.access.keyring import Keyring
from infinity_pool.api.batches import ledger
from infinity_pool.api.batches.answering import Answering, not_run
from infinity_pool.api.batches.inside import Inside
from infinity_pool.api.batches.ledger import Ledger
from infinity_pool.api.batches.lines import Checker
from infinity_pool.api.batches.storage import Line, Storage, place_of
from infinity_pool.api.batches.window import Window
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker import batches, files
from infinity_pool.broker.batches import CANCELLABLE, Batch, Claim, Status, moved
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import end
from infinity_pool.broker.errors import Forbidden, InvalidInput
from infinity_pool.broker.files import StoredFile

_LOOK = 1.0  # s between two looks at what is wanted of a batch; far less than its claim lasts
_MARGIN = 2**16  # bytes of a line beside its body

EXPIRED, CANCELLED = "batch_expired", "batch_cancelled"


class Means(NamedTuple):
    """What batches are run with."""

    settings: ApiSettings
    redis: Redis
    storage: Storage
    keyring: Keyring
    inside: Inside


class Failed(Exception):
    """The batch cannot be run; `errors` say why."""

    def __init__(self, *errors: dict[str, Any]) -> None:
        super().__init__(errors)
        self.errors = list(errors)


class Run:
    """A batch in the hands of this replica."""

    def __init__(self, means: Means, claim: Claim, batch: Batch) -> None:
        self._means = means
        self._claim = claim
        self._batch = batch
        self._stopped = self._left = batch.stopped  # why it is to stop, and why lines were left, if any were
        self._answering: Answering | None = None
        self._heard(batch.status)
        self._longest = means.settings.max_body + _MARGIN

    async def run(self) -> Status:
        """
        Run the batch to its end, and give the state it ends in.

        Raises ClaimLost, and what storage and queue raise, and leaves all as it was last put down.
        """
        try:
            return await self._watched()
        except Failed as failed:
            return await self._claim.change({**moved("failed"), "errors": failed.errors})

    @property
    def idle(self) -> float:
        """The seconds for which nothing was answered, though it could be."""
        return time.monotonic() - self._answering.answered_at if self._answering else 0.0

    async def _watched(self) -> Status:
        watching = asyncio.create_task(self._watch(), name="infinity batch watch")
        working = asyncio.create_task(self._work(), name="infinity batch work")
        try:
            await asyncio.wait([watching, working], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else watching.result()
        finally:
            for task in (working, watching):
                await end(task)

    async def _work(self) -> Status:
        if self._batch.status == "validating":
            await self._validate()
        if self._batch.total:
            await self._answer()
        return await self._finish()

    async def _watch(self) -> Status:
        """See whether the batch is to stop; raises ClaimLost, and Failed if its key is known no more."""
        while True:
            self._caller()
            with suppress(RedisError, OSError, TimeoutError):
                self._heard(await self._claim.change({}))
            await asyncio.sleep(_LOOK)

    def _heard(self, status: Status) -> None:
        if not self._stopped and status == "cancelling":
            self._stopped = CANCELLED
        if not self._stopped and status in CANCELLABLE and time.time() >= self._batch.expires_at:
            self._stopped = EXPIRED

    async def _validate(self) -> None:
        """Look at all lines, and begin, unless something is wrong."""
        checker = self._checker()
        try:
            async with aclosing(self._lines(0)) as lines:
                async for line in lines:
                    if checker.over or self._stopped == CANCELLED:
                        break
                    await checker.check(line.data)
                    await asyncio.sleep(0)
        except InvalidInput as error:
            checker.refuse_next(error)
        if self._stopped == CANCELLED:
            return
        checker.end()
        self._check_model(checker)
        if checker.errors:
            raise Failed(*checker.errors)
        begun = {"total": checker.requests, "model": checker.model}
        self._heard(await self._claim.change(begun | moved("in_progress"), expected=["validating"]))
        await self._renew()

    def _checker(self) -> Checker:
        endpoint = self._batch.endpoint
        kind = self._means.inside.endpoints.get(endpoint)
        if kind is None:
            raise Failed(_error("invalid_request", f"endpoint: nothing is served at {endpoint} any more", "endpoint"))
        return Checker(endpoint, kind, self._means.settings.max_batch_requests)

    def _check_model(self, checker: Checker) -> None:
        try:
            self._caller().check(checker.model or "", lane="bulk")
        except Forbidden as error:
            checker.errors.insert(0, _error("forbidden", error.message, error.param))

    async def _answer(self) -> None:
        """Have all lines answered that are not yet; those that are left when it is to stop, by why that is."""
        batch, means = self._batch, self._means
        self._answering = Answering(means.inside, batch.endpoint, self._caller, batch.expires_at)
        window, book = Window(self._answering.answer), Ledger(batch, self._claim, means.storage)
        try:
            async with aclosing(self._lines(batch.offset)) as lines:
                async for line in lines:
                    if not line.data.strip():
                        continue
                    while window.full or (self._stopped and window):
                        await self._take(window, book)
                    if self._stopped:
                        self._leave(line, book)
                        await self._commit(book)
                    else:
                        window.add(line)
            while window:
                await self._take(window, book)
            await book.commit(stopped=self._left)
        finally:
            await window.close()

    async def _take(self, window: Window, book: Ledger) -> None:
        """Put down the answer of the first line, when it is there."""
        if self._stopped:
            window.leave()
        if await window.wait(_LOOK):
            line, answered = window.take()
            if answered:
                book.add(line, answered)
            else:
                self._leave(line, book)
        await self._commit(book)

    def _leave(self, line: Line, book: Ledger) -> None:
        self._left = self._stopped
        book.add(line, not_run(line.data, self._left))

    async def _commit(self, book: Ledger) -> None:
        if book.due:
            await book.commit(stopped=self._left)
        await asyncio.sleep(0)

    async def _finish(self) -> Status:
        """Put the parts together, and end."""
        self._answering = None
        self._heard(await self._claim.change(moved("finalizing"), expected=["in_progress"]))
        parts = await self._claim.parts()
        made = {
            "output_file_id": await self._made(parts, ledger.OUTPUT),
            "error_file_id": await self._made(parts, ledger.ERRORS),
        }
        return await self._claim.change(
            {name: file_id for name, file_id in made.items() if file_id} | moved(self._end())
        )

    def _end(self) -> Status:
        if self._stopped == CANCELLED:
            return "cancelled"
        return "expired" if self._left else "completed"

    async def _made(self, parts: list[str], kind: str) -> str | None:
        """Make the file of one kind of answers, of the same id whenever it is made; None if there are none."""
        batch, now = self._batch, int(time.time())
        file_id = f"file-{batch.id.removeprefix('batch_')}-{kind}"
        try:
            size = await ledger.joined(self._means.storage, batch, parts, kind, place_of(file_id))
        except FileNotFoundError as error:
            raise Failed(_error("not_found", "what was answered is gone")) from error
        if not size:
            return None
        kept = batch.output_seconds or int(self._means.settings.files_days * 86_400)
        name = f"{batch.id}_{kind}.jsonl"
        file = StoredFile(file_id, batch.owner, name, "batch_output", size, now, now + kept)
        await files.add(self._means.redis, file)
        return file_id

    def _caller(self) -> Caller:
        """Give who made the batch, as the key is now; raises Failed if it is no more."""
        caller = self._means.keyring.named(self._batch.owner)
        if caller is None:
            raise Failed(_error("unauthorized", f"the key {self._batch.owner!r} that made this batch is known no more"))
        return caller

    async def _lines(self, offset: int) -> Any:
        """Give the lines of the input; raises Failed if it is gone."""
        try:
            place = place_of(self._batch.input_file_id)
            async with aclosing(self._means.storage.lines(place, offset, self._longest)) as lines:
                async for line in lines:
                    yield line
        except FileNotFoundError as error:
            raise Failed(_error("not_found", "the input file is gone", "input_file_id")) from error

    async def _renew(self) -> None:
        found = await batches.get(self._means.redis, self._batch.id)
        if found is None:
            raise batches.ClaimLost(self._batch.id)
        self._batch = found


def _error(code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": None, "message": message, "param": param}
