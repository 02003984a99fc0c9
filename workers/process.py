"""One worker process from its start to its end: load, warm up, serve, drain."""

import asyncio
import gc
import logging
import os
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from infinity_pool.broker.connection import connect, end, is_outage, through_outages
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.errors import InvalidInput, Unavailable
from infinity_pool.broker.memory import give_back_unused
from infinity_pool.workers.device.devices import expand
from infinity_pool.workers.device.meeting import folder_of
from infinity_pool.workers.device.memory import EXIT_OVER_LIMIT, Guard, require_within
from infinity_pool.workers.device.sharing import Sharing, Unshared
from infinity_pool.workers.device.sizes import parse_size
from infinity_pool.workers.loop.batching import Batcher
from infinity_pool.workers.loop.holdings import Holdings
from infinity_pool.workers.loop.intake import Intake
from infinity_pool.workers.loop.preprocess import Preprocessor
from infinity_pool.workers.loop.worker import Worker
from infinity_pool.workers.measuring import account
from infinity_pool.workers.measuring.meter import Meter
from infinity_pool.workers.measuring.pulse import Pulse
from infinity_pool.workers.measuring.warmup import Measured, warm_up
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.settings import WorkerSettings
from infinity_pool.workers.supervision.deadman import Deadman
from infinity_pool.workers.supervision.lifeline import leave_at_once, leave_without_remark
from infinity_pool.workers.supervision.signals import on_end
from infinity_pool.workers.supervision.supervise import EXIT_ABSENT, EXIT_REFUSED

_WORK_AHEAD = 0.3  # s of work that a worker holds at least, besides two batches
_MOST_AHEAD = 262_144  # tokens, however fast it is
_PATIENCE = 10.0  # s for which a turn on a shared device is waited for while none moves
_SWITCH_INTERVAL = 1e-4  # s; at Python's default a busy loop thread makes the engine's wait for the lock for 5 ms

logger = logging.getLogger(__name__)


async def run_worker(settings: WorkerSettings) -> int:
    """
    Run one worker until it is told to end; gives the exit code.

    It is 0, 1, EXIT_REFUSED if it can never serve, or EXIT_ABSENT if its model cannot be had now.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    leave_without_remark()
    code, refusal = 0, ""
    async with connect(settings.redis_url) as redis:
        pulse = Pulse(redis, settings.name, _worker_id(), mix=settings.allow_mixed)
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(pulse.run(), name="heartbeat")
                try:
                    code = await _load_and_serve(settings, pulse)
                finally:
                    await end(beating)
        except* InvalidInput as refusals:
            code = EXIT_REFUSED
            for each in refusals.exceptions:
                logger.critical("%s", each)
                refusal = str(each)
        except* Unavailable as absences:
            code = EXIT_ABSENT
            for absence in absences.exceptions:
                logger.critical("%s", absence)
        finally:
            await pulse.stop(refusal)
    return code


async def _load_and_serve(settings: WorkerSettings, pulse: Pulse) -> int:
    settings.check()
    settings = replace(settings, device=await asyncio.to_thread(_device, settings))
    loaded, measured = await asyncio.to_thread(_load, settings, pulse)
    return 0 if settings.preload_only else await _serve(settings, pulse, loaded, measured)


def _worker_id() -> str:
    return os.environ.get("INFINITY_WORKER_ID") or uuid.uuid4().hex


def _device(settings: WorkerSettings) -> str:
    devices = expand(settings.device)
    if len(devices) > 1:
        logger.warning("one worker is one device: of %s it takes the first", ", ".join(devices))
    return devices[0]


def _load(settings: WorkerSettings, pulse: Pulse) -> tuple[LoadedModel, Measured]:
    loaded = load_model(settings, settings.device, pulse.progress)
    pulse.progress("warming up")
    measured = warm_up(loaded.family, loaded.engine, settings.batch_tokens)
    give_back_unused()
    return loaded, measured


async def _serve(settings: WorkerSettings, pulse: Pulse, loaded: LoadedModel, measured: Measured) -> int:
    preprocessor = Preprocessor(loaded.family_name, loaded.files, settings.preprocess_workers, loaded.family)
    consumer = Consumer(settings.redis_url, settings.name, pulse.info.id)
    try:
        pulse.progress("starting the preprocessing pool")
        await preprocessor.start()
        require_within(parse_size(settings.memory_limit), settings.device)
        await through_outages(consumer.join)
        return await _work(settings, pulse, loaded, measured, preprocessor, consumer)
    finally:
        await asyncio.to_thread(preprocessor.close)  # it may hang with a process that is stopped
        loaded.engine.close()


async def _work(
    settings: WorkerSettings,
    pulse: Pulse,
    loaded: LoadedModel,
    measured: Measured,
    preprocessor: Preprocessor,
    consumer: Consumer,
) -> int:
    """
    Take and run jobs until told to stop; then take no more, finish what is held, answer it and leave.

    Gives the exit code, which is not 0 where it stopped because of its memory.
    """
    device = _shared(settings)
    guard = Guard(parse_size(settings.memory_limit), settings.device)
    holdings = Holdings(_capacity(measured.budget.tokens, measured.tokens_per_second))
    meter = Meter(settings.name, lambda: len(holdings), measured.tokens_per_second, measured.budget)
    worker = Worker(
        consumer,
        preprocessor,
        loaded.family,
        loaded.engine,
        Batcher(measured.budget),
        holdings,
        meter,
        in_flight=1 if loaded.engine.device == "cpu" or settings.shares_device else 2,
        device=device,
    )
    intake = Intake(settings.redis_url, consumer, holdings, worker.accept)
    with account.admin_port(settings, pulse, meter), closing(device):
        pulse.say(
            **account.description(loaded),
            device_share=settings.weight,
            batch_tokens=measured.budget.tokens,
            state="ready",
            stage="",
            progress=None,
        )
        pulse.measure = lambda: (
            account.measured(meter, pulse.info.state, settings.stall_timeout) | {"memory": guard.have}
        )
        await pulse.now()
        gc.freeze()  # what is loaded stays: a full collection need not walk it each time
        logger.info("%s is ready: %s", settings.name, account.summary(pulse.info))
        drain = _stop_on_signals(intake, pulse, settings.drain_timeout)
        deadman = Deadman(
            settings.stall_timeout,
            lambda: meter.stalled() > settings.stall_timeout,
            lambda: pulse.heard,
            pulse.stop,
        )
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(deadman.run(), name="deadman")
            guarding = group.create_task(_drain_when_over(guard, drain), name="memory")
            running = group.create_task(worker.run(), name="worker")
            await intake.run()
            worker.end()
            await running
            await end(watching)
            await end(guarding)
    await _leave(consumer)
    return EXIT_OVER_LIMIT if guard.over else 0


async def _drain_when_over(guard: Guard, drain: Callable[[], None]) -> None:
    await guard.until_over()
    drain()


def _shared(settings: WorkerSettings) -> Unshared:
    if not settings.shares_device:
        return Unshared()
    patience = min(_PATIENCE, settings.stall_timeout / 2)
    return Sharing(folder_of(settings.device), settings.weight, settings.max_running or 1, patience)


async def _leave(consumer: Consumer) -> None:
    """Leave the group; where the queue is away, others will tell by the silence."""
    try:
        logger.info("stopped; %d jobs are left to others", await consumer.leave())
    except Exception as error:
        if not is_outage(error):
            raise
        logger.warning("stopped, and the queue does not know: %s", error)
        await consumer.close()


def _capacity(batch_tokens: int, tokens_per_second: float) -> int:
    """Say how many tokens of work a worker should hold: enough to stay busy, and no more than it does in a moment."""
    return max(2 * batch_tokens, min(int(_WORK_AHEAD * tokens_per_second), _MOST_AHEAD))


def _stop_on_signals(intake: Intake, pulse: Pulse, patience: float) -> Callable[[], None]:
    """
    Drain when told to end, for `patience` seconds at most; leave at once when told again.

    Gives what the first does.
    """

    def leave_now() -> None:
        logger.warning("leaving now; jobs in hand go to other workers")
        leave_at_once(1)

    def drain() -> None:
        asyncio.get_running_loop().call_later(patience, leave_now)
        pulse.say(state="draining")
        intake.stop()

    on_end(drain, leave_now)
    return drain
