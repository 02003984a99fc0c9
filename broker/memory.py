"""The memory of this process: how much it has, and returning what it no longer uses."""

import asyncio
import ctypes
import os
import resource
import sys
from pathlib import Path

_PROC = Path("/proc")
_LOOK = 5.0  # s between two looks
_GROWN = 16 * 2**20  # bytes; less is not worth the milliseconds that returning it takes


def give_back_unused() -> None:
    """Have glibc return what was freed between other things; other systems do so by themselves."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


async def stay_small() -> None:
    """Return what is no longer used while this process is larger than it was, as long bodies make it."""
    pid = os.getpid()
    least = last = resident(pid)
    while True:
        await asyncio.sleep(_LOOK)
        if last != resident(pid) > least + _GROWN:  # as before: nothing was freed since
            await asyncio.to_thread(give_back_unused)
        last = resident(pid)
        least = min(least, last)


def resident(pid: int) -> int:
    """Give the bytes that a process has in memory; 0 where it has ended, or that is not to be read."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * resource.getpagesize()
    except FileNotFoundError:
        return 0
