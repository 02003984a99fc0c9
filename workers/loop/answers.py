"""A worker's answers: each job is settled once, and all that was settled since the last write goes in the next."""

import asyncio

from infinity_pool.broker.connection import through_outages
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.errors import InfinityError
from infinity_pool.broker.messages import Array, Failure, Reply, Result
from infinity_pool.workers.loop.held import Held
from infinity_pool.workers.loop.holdings import Holdings
from infinity_pool.workers.measuring.meter import Meter


class Answers:
    """Settles jobs, and answers them through the consumer; a job is held until its answer is written."""

    def __init__(self, consumer: Consumer, holdings: Holdings, meter: Meter) -> None:
        self._consumer = consumer
        self._holdings = holdings
        self._meter = meter
        self._settled: list[tuple[Held, Reply]] = []
        self._some = asyncio.Event()
        self._ending = False

    def give(self, held: Held, outputs: Array | list[object], tokens: int) -> None:
        """Settle a job with its outputs, if it is not settled yet."""
        if not held.settled:
            self._settle(held, Result(held.job.id, outputs, tokens, held.truncated, held.times()))

    def fail(self, held: Held, error: InfinityError) -> None:
        """Settle a job with an error, if it is not settled yet."""
        if not held.settled:
            self._meter.failed(error.code)
            self._settle(held, Failure(held.job.id, error))

    def end(self) -> None:
        """Have `write` return once nothing is held."""
        self._ending = True
        self._some.set()

    async def write(self) -> None:
        """Write until `end` was called and nothing is held."""
        while not (self._ending and len(self._holdings) == 0):
            await self._some.wait()
            self._some.clear()
            answers, self._settled = self._settled, []
            if answers:
                await through_outages(self._consumer.answer, [(held.delivery, reply) for held, reply in answers])
                for held, _ in answers:
                    self._holdings.remove(held)

    def _settle(self, held: Held, reply: Reply) -> None:
        held.settled = True
        held.outputs = None
        self._settled.append((held, reply))
        self._some.set()
