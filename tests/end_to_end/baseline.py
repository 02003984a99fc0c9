"""What must be as before once a storm is over: the queue's keys, and what each process has open."""

import re
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from redis import Redis

from infinity_pool.broker import keys
from infinity_pool.broker.messages import LANES, Lane

from .patience import until
from .processes import part_of
from .redis_server import RedisServer

_BOUNDED = re.compile(r":models$|:jobs:online$|:jobs:bulk$|:waiting$|:dead$")  # by what they hold, not by time
_GAUGES = {"requests": "infinity_http_requests_in_flight", "awaited jobs": "infinity_jobs_awaited"}


@dataclass(frozen=True)
class Vitals:
    """What one process has open; `rss` in MiB."""

    threads: int
    fds: int
    rss: float


@dataclass(frozen=True)
class Baseline:
    """One look: counts of the queue by name, keys that should not be there for ever, and each process's vitals."""

    queue: Mapping[str, int]
    forever: frozenset[str]
    vitals: Mapping[str, Vitals]

    def differences(self, later: "Baseline", *, spare: int = 4, growth: float = 30.0) -> list[str]:
        """
        Say what has grown since.

        A pool of connections opens one more when two commands happen to meet, up to its bound: for each process there
        may be `spare` more descriptors, and threads, and `growth` MiB.
        """
        found = [
            f"{name}: {self.queue.get(name, 0)}, later {count}"
            for name, count in later.queue.items()
            if count > self.queue.get(name, 0) + (spare * len(self.vitals) // 2 if name == "connections" else 0)
        ]
        found += [f"{key} is new and never expires" for key in later.forever - self.forever]
        for name, now in later.vitals.items():
            before = self.vitals.get(name)
            if before is None:
                found.append(f"{name} is new")
            elif now.threads > before.threads + spare or now.fds > before.fds + spare or now.rss > before.rss + growth:
                found.append(f"{name}: {before}, later {now}")
        return found


def look(server: RedisServer, processes: Iterable[psutil.Process], urls: Sequence[str]) -> Baseline:
    """Look at the queue, at all processes of a stack, and at what its APIs have in hand."""
    names = [key.decode() for key in server.ask("KEYS", "*")]
    forever = frozenset(name for name in names if not _BOUNDED.search(name) and server.commands.pttl(name) == -1)
    return Baseline({**_queue(server, names), **_in_hand(urls)}, forever, vitals_of(processes))


def vitals_of(processes: Iterable[psutil.Process]) -> dict[str, Vitals]:
    """Look at processes, each under the name of its part and a number."""
    vitals: dict[str, Vitals] = {}
    for each in sorted(processes, key=lambda process: process.pid):
        part = part_of(each)
        number = sum(name.startswith(part) for name in vitals)
        memory = each.memory_info().rss / 2**20
        vitals[f"{part} {number}"] = Vitals(each.num_threads(), each.num_fds(), memory)
    return vitals


async def back_to(before: Baseline, now: Any, patience: float = 10.0, **tolerance: Any) -> Baseline:
    """Wait until `now()` shows nothing that `before` did not; gives the last look, and fails with the differences."""
    later: Baseline = now()
    found: list[str] = []

    def same() -> bool:
        nonlocal later, found
        later = now()
        found = before.differences(later, **tolerance)
        return not found

    try:
        await until(same, patience)
    except AssertionError:
        raise AssertionError("not back to the base line:\n" + "\n".join(found)) from None
    return later


def _queue(server: RedisServer, names: Sequence[str]) -> dict[str, int]:
    commands = server.commands
    counts = {
        "reply channels": sum(":replies:" in name for name in names),
        "replies": sum(commands.xlen(name) for name in names if ":replies:" in name),
        "connections": len(server.clients()),
    }
    for model in {name.split("{")[1].split("}")[0] for name in names if ":worker:" in name}:  # those with one alive
        counts[f"waiting for {model}"] = sum(map(int, commands.hgetall(keys.waiting(model)).values()))
        counts[f"attempts at {model}"] = commands.hlen(keys.attempts(model))
        for lane in LANES:
            counts |= {f"{lane} {what} of {model}": count for what, count in _lane(commands, model, lane).items()}
    return counts


def _lane(commands: Redis, model: str, lane: Lane) -> dict[str, int]:
    """Count a lane's jobs, those in somebody's hands, and the consumers that are no worker alive."""
    stream = keys.jobs(model, lane)
    if not commands.exists(stream) or not commands.xinfo_groups(stream):
        return {"jobs": commands.xlen(stream)}
    consumers = [row["name"].decode() for row in commands.xinfo_consumers(stream, keys.GROUP)]
    return {
        "jobs": commands.xlen(stream),
        "pending": commands.xpending(stream, keys.GROUP)["pending"],
        "ghosts": sum(not commands.exists(keys.worker(model, name)) for name in consumers),
    }


def _in_hand(urls: Sequence[str]) -> Counter[str]:
    """Give what APIs say that they have in hand, beside the request that asks them."""
    counts = Counter(dict.fromkeys(_GAUGES, 0))
    for url in urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
            said = dict(line.rsplit(" ", 1) for line in response.read().decode().splitlines())
        counts.update({what: int(float(said[name])) for what, name in _GAUGES.items()})
    counts["requests"] -= len(urls)
    return counts
