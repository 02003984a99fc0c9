"""A producer that is killed again and again: `python -m tests.chaos.producing URL TOTAL FILE` goes on where it was."""

import asyncio
import sys
from pathlib import Path
from typing import TextIO

import numpy as np

from infinity_pool.broker.messages import Reply, Result
from infinity_pool.broker.producer import Producer

NAME = "nightly"
MODEL = "m"
IN_FLIGHT = 500


def text(number: int) -> str:
    """Give the text of one job."""
    return "x" * (number % 997)


def verdict(reply: Reply) -> str:
    """Say what became of a job: right, wrong, or the error's code."""
    if not isinstance(reply, Result):
        return reply.error.code
    right = np.array_equal(np.unique(np.asarray(reply.outputs)), [int(reply.job_id) % 997])
    return "right" if right else "wrong"


async def main(url: str, total: int, done: Path) -> None:
    """
    Put what is not done, and write down each reply before the next is asked for.

    What was open comes first, before any reply is handled, since the last life may have died in the midst of a put;
    later, one that is done would be taken for new.
    """
    finished = {int(line.split()[0]) for line in done.read_text().splitlines() if len(line.split()) == 2}
    async with Producer(url, NAME, max_in_flight=IN_FLIGHT) as producer:
        begun = {int(name) for name in await producer.open_jobs()}
        await _put(producer, sorted(begun - finished))
        known = finished | begun
        putting = asyncio.create_task(_put(producer, [number for number in range(total) if number not in known]))
        with done.open("a") as log:
            print(file=log)  # a new life, and the end of a line that the last may have left
            while not putting.done() or await producer.open_jobs():
                await _write_down(producer, log)
                await asyncio.sleep(0.01)
        await putting


async def _put(producer: Producer, numbers: list[int]) -> None:
    for number in numbers:
        await producer.put(MODEL, [text(number)], id=str(number))


async def _write_down(producer: Producer, log: TextIO) -> None:
    async for reply in producer.replies():
        print(reply.job_id, verdict(reply), file=log, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
