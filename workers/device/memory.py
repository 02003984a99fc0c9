"""What a model needs of a device's memory, what there is of it, and a worker's limit."""

import asyncio
import itertools
import logging
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.memory import give_back_unused, resident
from infinity_pool.workers.device.devices import kind_of
from infinity_pool.workers.device.meeting import physical
from infinity_pool.workers.device.sizes import shown
from infinity_pool.workers.files.content import file_names, network_weights
from infinity_pool.workers.interface import ModelFiles

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1}
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
EXIT_OVER_LIMIT = 75
"""The exit code of a worker that came to have more than its limit, and may start anew (EX_TEMPFAIL of sysexits.h)."""

_LOOK = 1.0  # s between two looks at what a worker has
_LOOKS_A_TRIM = 30  # it takes some milliseconds, and what was returned is asked for again
_LOOKS = 3  # in a row over its limit before it is replaced: a large batch is over in a moment

_log = logging.getLogger(__name__)


def weights(files: ModelFiles, engine: str, device: str, dtype: str) -> int:
    """Give the bytes that a network's weights take on a device: those of its files, in the number format wanted."""
    if files.built == Path():
        return 0
    if engine != "torch":
        own = [
            files.path / str(one["graph"])
            for one in files.extra.get(engine, {}).get("graphs", {}).values()
            if one["own"]
        ]
        made = files.built / engine
        return _size([*(path for graph in own for path in graph.parent.glob(f"{graph.name}*")), *made.rglob("*")])
    size = _size(files.path / name for name in network_weights(file_names(files.path)))
    theirs = str(files.config.get("dtype") or files.config.get("torch_dtype") or "float32")
    half = "bfloat16" if kind_of(device) == "cuda" else "float32"
    return size * _BYTES.get(half if dtype == "auto" else dtype, 4) // _BYTES.get(theirs, 4)


def require_room(need: int, limit: int, device: str, engine: str = "") -> None:
    """
    Refuse a start that needs so much more than it has, if that is over its limit (0: none) or over what is free.

    Raises InvalidInput with the figures. With torch on a GPU the limit is also set there, for all that follows.
    """
    free, whole = free_memory(device, engine), need + in_use(device)
    figures = f"it needs about {shown(whole)} on {device}"
    figures += f", with a limit of {shown(limit)}" if limit else ""
    figures += "" if free is None else f", and {shown(free)} are free"
    if (limit and whole > limit) or (free is not None and need > free):
        raise InvalidInput(f"the model does not fit: {figures}", param="memory_limit")
    if limit and kind_of(device) == "cuda" and engine == "torch":
        _limit_torch(device, limit)


def require_within(limit: int, device: str) -> None:
    """Refuse a worker that has warmed up and has more than its limit; raises InvalidInput with the figures."""
    have = in_use(device)
    if limit and have > limit:
        raise InvalidInput(
            f"the model does not fit: warmed up it has {shown(have)} on {device}, with a limit of {shown(limit)}",
            param="memory_limit",
        )


def in_use(device: str) -> int:
    """Give the bytes that this process has on a device; on cpu with those of its preprocessing processes."""
    if kind_of(device) == "cuda":
        return int(_torch().cuda.memory_reserved(device)) if "torch" in sys.modules else 0
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid)]
    return sum(resident(pid) for pid in pids) or most_used("cpu")  # which this is where there is no /proc


def most_used(device: str) -> int:
    """Give the bytes that this process had at most on a device: of a GPU as torch counts, else of the machine."""
    if kind_of(device) == "cuda" and "torch" in sys.modules:
        return int(_torch().cuda.max_memory_reserved(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory(device: str, engine: str = "") -> int | None:
    """Give the bytes that are free on a device, and in this container; None where nobody tells."""
    if kind_of(device) == "cuda":
        return int(_torch().cuda.mem_get_info(device)[0]) if engine == "torch" else _ask_driver(device)
    found = [free for free in (_free_here(), _free_in_cgroup()) if free is not None]
    return min(found) if kind_of(device) == "cpu" and found else None


class Guard:
    """Looks at what a worker has, while it serves, and has returned what it no longer uses."""

    def __init__(self, limit: int, device: str) -> None:
        self._limit = limit
        self._device = device
        self.have = in_use(device)
        self.over = False

    async def until_over(self) -> None:
        """Return when it has had more than its limit for a while; never, if it has none."""
        over = 0
        for look in itertools.count(1):
            await asyncio.sleep(_LOOK)
            if look % _LOOKS_A_TRIM == 0 or over == 1:
                await asyncio.to_thread(give_back_unused)
            self.have = in_use(self._device)
            over = over + 1 if self._limit and self.have > self._limit else 0
            if over == _LOOKS:
                break
        self.over = True
        _log.error(
            "it has %s, with a limit of %s: it finishes what it holds, and ends", shown(self.have), shown(self._limit)
        )


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def _free_here() -> int | None:
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
    except FileNotFoundError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_in_cgroup() -> int | None:
    """Give what a container may still take; its cache of files makes room."""
    try:
        most, now = (_CGROUP / "memory.max").read_text().strip(), int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except FileNotFoundError:  # no cgroup, or an older kind
        return None
    return None if most == "max" else int(most) - now + int(stat.get("inactive_file", 0))


def _ask_driver(device: str) -> int | None:
    query = ["nvidia-smi", "-i", physical(device).partition(":")[2], "--query-gpu=memory.free"]
    try:
        answer = subprocess.run([*query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return int(answer.stdout) * 2**20 if answer.stdout.strip().isdigit() else None


def _limit_torch(device: str, limit: int) -> None:
    total = _torch().cuda.mem_get_info(device)[1]
    _torch().cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)


def _torch() -> Any:
    import torch  # late: only what runs on torch may import it

    return torch
