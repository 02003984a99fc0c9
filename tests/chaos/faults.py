"""Everything that can go wrong and be put right again; each fault is a function of its own name."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import psutil

from infinity_pool.broker import keys
from tests.chaos.stack import MODEL, Stack
from tests.end_to_end.crowd import drop_one, request

Fault = Callable[[Stack, random.Random], Awaitable[None]]

_GARBAGE = ({"some": "thing"}, {"r": b"\xc1"}, {"c": "many", "n": "some", "j": b"\x80"})


class Busy(Exception):
    """What a fault would break is broken already."""


# --- workers


async def kill_a_worker(stack: Stack, rng: random.Random) -> None:
    """-9, and a new one after a while."""
    async with _slot("worker", rng) as slot:
        worker = stack.workers[slot]
        worker.process.kill()
        await asyncio.to_thread(worker.wait)
        await asyncio.sleep(2 * rng.random())
        await stack.start_worker(slot)


async def stop_a_worker(stack: Stack, rng: random.Random) -> None:
    """SIGSTOP: it counts as dead, comes back, and answers what others have answered."""
    async with _slot("worker", rng) as slot:
        await _suspend(stack.workers[slot].process.pid, rng.uniform(0.5, 6))


async def replace_a_worker(stack: Stack, rng: random.Random) -> None:
    """SIGTERM, and a new one."""
    async with _slot("worker", rng) as slot:
        worker = stack.workers[slot]
        worker.process.terminate()
        assert await asyncio.to_thread(worker.wait) == 0, worker.output[-3000:]
        await stack.start_worker(slot)


async def kill_a_preprocessing_process(stack: Stack, rng: random.Random) -> None:
    """-9; its worker starts another."""
    async with _slot("worker", rng) as slot:
        for child in psutil.Process(stack.workers[slot].process.pid).children():
            with suppress(psutil.NoSuchProcess):  # one that has ended has no command line
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()


# --- API replicas


async def kill_an_api(stack: Stack, rng: random.Random) -> None:
    """-9: it breaks its own connections, and no others."""
    async with _slot("api", rng) as slot:
        api = stack.apis[slot]
        stack.killed.add(api.url)
        api.process.kill()
        await asyncio.to_thread(api.wait)
        await stack.start_api(slot)


async def stop_an_api(stack: Stack, rng: random.Random) -> None:
    """SIGSTOP: who waits there waits a little longer."""
    async with _slot("api", rng) as slot:
        await _suspend(stack.apis[slot].process.pid, rng.uniform(0.5, 3))


async def replace_an_api(stack: Stack, rng: random.Random) -> None:
    """SIGTERM: it is unready first, then answers what is in hand."""
    async with _slot("api", rng) as slot:
        api = stack.apis[slot]
        stack.leaving.add(api.url)
        api.process.terminate()
        assert await asyncio.to_thread(api.wait) == 0, api.output[-3000:]
        await stack.start_api(slot)


# --- the queue


async def restart_the_queue_empty(stack: Stack, rng: random.Random) -> None:
    """-9, and back without its data."""
    async with _queue():
        stack.server.kill()
        await asyncio.sleep(_outage(rng))
        stack.server.forget()
        await asyncio.to_thread(stack.server.start)


async def restart_the_queue_with_its_data(stack: Stack, rng: random.Random) -> None:
    """SIGTERM or -9, and back with what is on its disk."""
    async with _queue():
        stack.server.kill(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        await asyncio.sleep(_outage(rng))
        await asyncio.to_thread(stack.server.start)


async def hang_the_queue(stack: Stack, rng: random.Random) -> None:
    """SIGSTOP, with all its connections open."""
    async with _queue():
        stack.server.freeze()
        await asyncio.sleep(rng.uniform(0.5, 8))
        stack.server.thaw()


async def empty_the_queue(stack: Stack, rng: random.Random) -> None:
    """FLUSHALL."""
    async with _queue():
        stack.server.ask("FLUSHALL")


async def make_the_queue_read_only(stack: Stack, rng: random.Random) -> None:
    """As an old master is when another took its place."""
    async with _queue():
        stack.server.ask("REPLICAOF", "127.0.0.1", "1")
        await asyncio.sleep(rng.uniform(0.5, 6))
        stack.server.ask("REPLICAOF", "NO", "ONE")


async def fill_the_queues_memory(stack: Stack, rng: random.Random) -> None:
    """Every command that needs memory is refused."""
    async with _queue():
        stack.server.ask("CONFIG", "SET", "maxmemory", "1")
        await asyncio.sleep(rng.uniform(0.5, 6))
        stack.server.ask("CONFIG", "SET", "maxmemory", "0")


async def close_all_connections(stack: Stack, rng: random.Random) -> None:
    """CLIENT KILL."""
    async with _queue():
        stack.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        stack.server.ask("CLIENT", "KILL", "TYPE", "pubsub")


async def cut_the_wire(stack: Stack, rng: random.Random) -> None:
    """Half of the processes lose their connections, in the midst of a message maybe."""
    stack.proxy.cut()


async def lengthen_the_wire(stack: Stack, rng: random.Random) -> None:
    """50 ms more each way, for half of the processes."""
    stack.proxy.delay = 0.05
    await asyncio.sleep(rng.uniform(1, 5))
    stack.proxy.delay = 0.0


async def put_garbage_on_the_queue(stack: Stack, rng: random.Random) -> None:
    """What is no job among the jobs, and what is no reply among the replies."""
    async with _queue():
        channels = [key.decode() for key in stack.server.ask("KEYS", "infinity:1:replies:*")]
        for stream in (keys.jobs(MODEL, "online"), keys.jobs(MODEL, "bulk"), *channels):
            fields = rng.choice(_GARBAGE)
            stack.server.ask("XADD", stream, "NOMKSTREAM", "*", *(part for pair in fields.items() for part in pair))


# --- clients


async def send_a_crowd_that_goes_away(stack: Stack, rng: random.Random) -> None:
    """300 who cut their connection while they send or wait."""
    for url in stack.urls():
        data = [request(MODEL, ["y" * rng.randint(1, 3000)] * rng.randint(1, 20)) for _ in range(150)]
        await asyncio.gather(*(drop_one(url, each, 0.2, rng) for each in data), return_exceptions=True)


FAULTS: dict[Fault, int] = {
    kill_a_worker: 3,
    stop_a_worker: 2,
    replace_a_worker: 2,
    kill_a_preprocessing_process: 2,
    kill_an_api: 2,
    stop_an_api: 2,
    replace_an_api: 2,
    restart_the_queue_empty: 2,
    restart_the_queue_with_its_data: 2,
    hang_the_queue: 1,
    empty_the_queue: 2,
    make_the_queue_read_only: 1,
    fill_the_queues_memory: 1,
    close_all_connections: 2,
    cut_the_wire: 3,
    lengthen_the_wire: 2,
    put_garbage_on_the_queue: 2,
    send_a_crowd_that_goes_away: 2,
}
"""Every fault, and how often it comes beside the others."""

_taken: set[str] = set()


@asynccontextmanager
async def _alone(name: str) -> AsyncIterator[None]:
    if name in _taken:
        raise Busy(name)
    _taken.add(name)
    try:
        yield
    finally:
        _taken.discard(name)


@asynccontextmanager
async def _slot(kind: str, rng: random.Random) -> AsyncIterator[int]:
    """Take one of the two slots for oneself."""
    slot = rng.randrange(2)
    async with _alone(f"{kind} {slot}"):
        yield slot


def _queue() -> AbstractAsyncContextManager[None]:
    return _alone("queue")


def _outage(rng: random.Random) -> float:
    """Give the seconds of an outage: mostly short, sometimes long."""
    return rng.choice([0.0, 0.3, 1.0, 2.0, 2.0, 10.0])


async def _suspend(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
