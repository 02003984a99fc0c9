"""The loop of one worker: accept jobs, prepare their items, form batches when the device is free, run, answer."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.errors import DeadlineExceeded, InfinityError, WorkerFailed
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.sharing import Unshared
from infinity_pool.workers.faults import DeviceLost, OutOfMemory
from infinity_pool.workers.interface import Engine, Family, Rows
from infinity_pool.workers.loop.allowance import Allowance
from infinity_pool.workers.loop.answers import Answers
from infinity_pool.workers.loop.batching import Batcher
from infinity_pool.workers.loop.haste import Haste
from infinity_pool.workers.loop.held import Held, Unit, gather, size_of
from infinity_pool.workers.loop.holdings import Holdings
from infinity_pool.workers.loop.preparing import Answered, Prepared, Request
from infinity_pool.workers.loop.preprocess import Preprocessor
from infinity_pool.workers.loop.slices import slices
from infinity_pool.workers.loop.trials import Trials
from infinity_pool.workers.measuring.meter import Meter

logger = logging.getLogger(__name__)


class Worker:
    """
    Runs what it is given until it is told that no more will come.

    The network runs in a thread for each of the batches in flight; everything else is on the event loop, in steps of a
    take or a batch.
    """

    def __init__(
        self,
        consumer: Consumer,
        preprocessor: Preprocessor,
        family: Family,
        engine: Engine,
        batcher: Batcher[Unit],
        holdings: Holdings,
        meter: Meter,
        in_flight: int = 1,
        device: Unshared | None = None,
    ) -> None:
        self._consumer = consumer
        self._preprocessor = preprocessor
        self._family = family
        self._engine = engine
        self._batcher = batcher
        self._allowance = Allowance(batcher.budget)
        self._haste = Haste()
        self._holdings = holdings
        self._meter = meter
        self._device = device or Unshared()
        self._in_flight = in_flight
        self._threads = ThreadPoolExecutor(in_flight, "engine")
        self._some = asyncio.Event()  # units are in line, or the end has come
        self._answers = Answers(consumer, holdings, meter)
        self._trials = Trials(consumer, self._answers)
        self._preparing: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup
        self._ending = False

    async def accept(self, deliveries: list[Delivery]) -> None:
        """Hold the jobs of one take and have their items prepared; a job already held is not held twice."""
        if len(self._holdings) == 0:
            self._meter.woke()
        held, unwanted = [], []
        for delivery in deliveries:
            if self._holdings.has(delivery):
                continue
            if delivery.job is None or self._holdings.will_answer(delivery.job.id):
                unwanted.append(delivery)  # unreadable, or queued twice by a caller that feared a loss
            else:
                held.append(Held(delivery, delivery.job))
                self._holdings.add(held[-1])
        for part in slices(held):
            self._preparing.add(task := self._start(self._prepare(part), "prepare"))
            task.add_done_callback(self._preparing.discard)
        await self._consumer.forget(unwanted)  # last: it may fail, and what is held must not be left unprepared

    async def run(self) -> None:
        """
        Run batches and write answers until `end` is called and nothing is left.

        Whatever breaks in here, the whole worker ends with it: its jobs go to others, rather than wait for ever.
        """
        async with asyncio.TaskGroup() as self._group:
            answering = self._start(self._answers.write(), "answers")
            await self._run_batches()
            self._answers.end()
            await answering
        self._threads.shutdown()

    def end(self) -> None:
        """Have `run` return once all that is held is answered; no more will be accepted."""
        self._ending = True
        self._some.set()

    async def _prepare(self, held: list[Held]) -> None:
        requests = [Request(one.job.task, one.job.items, one.job.options) for one in held]
        started = time.perf_counter()
        prepared, errors = await self._preprocessor.prepare(requests, held[0].delivery.lane)
        seconds = time.perf_counter() - started
        self._meter.prepared(seconds)
        for one in held:
            one.prepared = seconds
        for place, error in errors.items():
            self._answers.fail(held[place], error)
        for outcome in prepared:
            jobs = [held[place] for place in outcome.jobs]
            if isinstance(outcome, Prepared):
                self._line_up(outcome, jobs)
            else:
                self._answer(outcome, jobs)
        self._some.set()

    def _line_up(self, prepared: Prepared, jobs: list[Held]) -> None:
        """Put prepared items in line; an orphan's in a line of its own, since it may be what killed its worker."""
        lengths, truncated = prepared.rows.lengths.tolist(), prepared.rows.truncated.tolist()
        place, budget = 0, self._batcher.budget
        for held in jobs:
            end = place + len(held.job.items)
            held.head, held.tokens, held.truncated = prepared.head, sum(lengths[place:end]), sum(truncated[place:end])
            self._meter.counted(held)
            units = [(lengths[at], Unit(held, at - place, prepared.rows, at)) for at in range(place, end)]
            line = (prepared.head, held.job.id) if held.delivery.orphan else prepared.head
            ahead = held.job.key != "" and self._holdings.is_little(held, budget.tokens, budget.short)
            self._batcher.add(held.delivery.lane, line, units, ahead=ahead)
            self._haste.came(held.delivery.lane, ahead=ahead)
            place = end

    def _answer(self, answered: Answered, jobs: list[Held]) -> None:
        """Settle jobs that need no network; while no batch runs, these are signs of life."""
        for held, outputs, tokens in zip(jobs, answered.outputs, answered.tokens, strict=True):
            self._answers.give(held, outputs, tokens)
        self._meter.woke()

    async def _run_batches(self) -> None:
        """Form the next batch when the device has room for one, and not before."""
        running: set[asyncio.Task[None]] = set()
        while True:
            while len(running) >= self._in_flight:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if len(self._batcher) == 0 and not await self._more():
                break
            await self._take_device()
            if units := self._live(self._batcher.take(self._haste.lanes())):
                running.add(self._start(self._run_batch(units), "batch"))
                await asyncio.sleep(0)  # let it start: the device comes first, then the answers of the last one
            else:
                self._give_back_device()
        if running:
            await asyncio.wait(running)

    async def _more(self) -> bool:
        """Wait for items in line; false if none will come."""
        while len(self._batcher) == 0:
            if self._ending and not self._preparing:
                return False
            self._some.clear()
            if self._ending and self._preparing:
                await asyncio.wait(self._preparing)
            else:
                await self._some.wait()
        return True

    def _live(self, units: Sequence[Unit]) -> list[Unit]:
        """Leave out what nobody waits for any more."""
        now = time.monotonic()
        live = []
        for unit in units:
            held = unit.held
            if held.settled:
                continue
            if held.delivery.deadline is not None and held.delivery.deadline < now:
                self._answers.fail(held, DeadlineExceeded("the job's time was over before it could be run"))
                continue
            live.append(unit)
        return live

    async def _take_device(self) -> None:
        self._meter.waits_for_turn()
        await self._device.take()
        self._meter.has_turn()

    def _give_back_device(self) -> None:
        self._device.give_back(more=len(self._batcher) > 0 or len(self._preparing) > 0)

    async def _run_batch(self, units: list[Unit]) -> None:
        try:
            if await self._trials.may_start(units[0].held, self._group):
                await self._compute(units)
        finally:
            self._give_back_device()

    async def _compute(self, units: list[Unit]) -> None:
        """Run a batch; one that raises is halved until the culprit stands by itself, and fails alone."""
        units, rows = gather(units)
        self._meter.starts(units)
        started = time.perf_counter()
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._threads, self._forward, rows)
        except DeviceLost:
            raise  # the next process will have the jobs, and a device
        except Exception as error:  # noqa: BLE001 - whatever the network raises is answered, not lost
            await self._halve(units, error)
            return
        finally:
            self._meter.ended(time.perf_counter() - started)
        seconds = time.perf_counter() - started
        self._meter.ran(units, seconds)
        for held in {unit.held for unit in units}:
            held.ran += seconds
        self._allowance.went_well()
        self._scatter(units, outputs)
        self._batcher.budget = self._allowance.now

    async def _halve(self, units: list[Unit], error: Exception) -> None:
        if isinstance(error, OutOfMemory):
            self._allowance.was_too_much(size_of(units, self._batcher.budget).run)
            self._batcher.budget = self._allowance.now
        if len(units) == 1:
            self._answers.fail(units[0].held, _as_ours(error, units[0].item))
            return
        if not isinstance(error, OutOfMemory):
            logger.warning("a batch of %d items failed and is halved: %r", len(units), error)
        middle = len(units) // 2
        await self._compute(units[:middle])
        await self._compute(units[middle:])

    def _forward(self, rows: list[Rows]) -> Array | list[Any]:
        batch = self._family.collate(rows)
        return self._family.split(self._engine.run(batch, self._family.reduce), batch)

    def _scatter(self, units: list[Unit], outputs: Array | list[Any]) -> None:
        alike = not isinstance(outputs, list)
        for unit, output in zip(units, outputs, strict=True):
            held = unit.held
            if not held.settled and held.put(unit.item, output, alike):
                self._finish(held)

    def _finish(self, held: Held) -> None:
        assert held.head is not None
        try:
            outputs = self._family.finish(held.head, held.outputs, held.job.options)
        except InfinityError as error:
            self._answers.fail(held, error)
            return
        self._answers.give(held, outputs, held.tokens)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)


def _as_ours(error: Exception, item: int) -> InfinityError:
    if isinstance(error, InfinityError):
        return error
    logger.error("the network failed on one item", exc_info=error)
    return WorkerFailed(f"the model failed on it: {type(error).__name__}", item=item)
