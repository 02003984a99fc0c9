"""
Breaks everything that can be broken, at random, and accounts for every request.

    CHAOS_SEED=7 CHAOS_SECONDS=600 CHAOS_PARTS=storm,crosstalk,producer,memory,idle python -m tests.chaos

The same seed gives the same faults in the same order. The exit code is 1 if anything was lost, wrong, doubled or
stuck, or did not go back to its base line.
"""

import asyncio
import logging
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.crosstalk import crosstalk
from tests.chaos.idle import idle
from tests.chaos.memory import memory
from tests.chaos.producer import producer
from tests.chaos.report import show
from tests.chaos.storm import storm

PARTS = {"storm": storm, "crosstalk": crosstalk, "producer": producer, "memory": memory, "idle": idle}


async def main() -> int:
    """Run the parts one after the other and show what became of everything; SIGTERM ends it in order."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    seconds = float(os.environ.get("CHAOS_SECONDS") or 600)
    names = (os.environ.get("CHAOS_PARTS") or ",".join(PARTS)).split(",")
    logs = Path(tempfile.mkdtemp(prefix="chaos-"))
    logging.basicConfig(filename=logs / "harness.log", level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    _say(f"seed {seed}, {seconds:g} s; logs in {logs}")
    parts = []
    for name in names:
        folder = logs / name
        folder.mkdir()
        parts.append(await PARTS[name](folder, seconds, seed))
    show(parts, seed)
    failures = [failure for part in parts for failure in part.verdict()]
    _say(f"{len(failures)} failures; seed {seed}; logs in {logs}" if failures else f"all is well; seed {seed}")
    return 1 if failures else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - a program's progress


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
