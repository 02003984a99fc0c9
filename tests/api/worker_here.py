"""A worker of a tiny model in a thread of this process: all of its loop on the real queue, and quick to start."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_pool.broker.connection import connect, end
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.presence import WorkerInfo, beat
from infinity_pool.workers.interface import Engine, Family, ModelFiles
from infinity_pool.workers.loop.batching import Batcher, Budget
from infinity_pool.workers.loop.held import Unit
from infinity_pool.workers.loop.holdings import Holdings
from infinity_pool.workers.loop.intake import Intake
from infinity_pool.workers.loop.preprocess import Preprocessor
from infinity_pool.workers.loop.worker import Worker
from infinity_pool.workers.measuring.meter import Meter
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.detect import detect
from tests.workers.conftest import prepare_here

_BUDGET = 2048  # tokens of a batch


class WorkerHere:
    """The worker of model `name`, and its family and engine, to compare with."""

    def __init__(self, url: str, name: str, folder: Path, family: str = "") -> None:
        found = prepare_here(folder, **({"family": family} if family else {}))
        kind = family or detect(found.files)
        self.family: Family = make_family(kind, found.files)
        self.engine: Engine = engine_module(found.engine).load(found.files, self.family, "cpu", "auto")
        self.files: ModelFiles = found.files
        self._url = url
        self._info = WorkerInfo(
            id=f"worker of {name}",
            model=name,
            state="ready",
            family=kind,
            tasks=[*self.family.tasks],
            labels=[*self.family.labels],
            prompts=[*self.family.prompts],
            engine=found.engine,
            device="cpu",
            dtype=self.engine.dtype,
            max_length=self.family.max_length,
            max_chars=self.family.max_chars,
            dimensions=self.family.dimensions,
            batch_tokens=_BUDGET,
        )
        self._ready = threading.Event()

    @contextmanager
    def running(self) -> Iterator["WorkerHere"]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        thread.start()
        assert self._ready.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._intake.stop)
            thread.join(30)
            assert not thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        holdings = Holdings(4 * _BUDGET)
        meter = Meter(self._info.model, lambda: len(holdings))
        consumer = Consumer(self._url, self._info.model, self._info.id)
        preprocessor = Preprocessor(self._info.family, self.files, 0, self.family)
        worker = Worker(
            consumer, preprocessor, self.family, self.engine, Batcher[Unit](Budget(_BUDGET, 256)), holdings, meter
        )
        self._intake = Intake(self._url, consumer, holdings, worker.accept)
        await consumer.join()
        beating = asyncio.create_task(self._beat())
        running = asyncio.create_task(worker.run())
        await self._intake.run()
        worker.end()
        await running
        await end(beating)
        assert await consumer.leave() == 0
        preprocessor.close()

    async def _beat(self) -> None:
        redis = connect(self._url)
        try:
            while True:
                await beat(redis, self._info)
                self._ready.set()
                await asyncio.sleep(0.5)
        finally:
            await redis.aclose()
