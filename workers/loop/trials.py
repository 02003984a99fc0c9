"""Starts of orphans, jobs whose worker died with them: each is recorded first, and after some the job is given up."""

import asyncio

from infinity_pool.broker.connection import through_outages
from infinity_pool.broker.consumer import Consumer
from infinity_pool.broker.errors import DeadLettered
from infinity_pool.workers.loop.answers import Answers
from infinity_pool.workers.loop.held import Held

MOST_STARTS = 3
"""How often a job is started in all before it goes to the dead letters: the first delivery, then as an orphan."""


class Trials:
    """Says of each job whether it may be started."""

    def __init__(self, consumer: Consumer, answers: Answers) -> None:
        self._consumer = consumer
        self._answers = answers

    async def may_start(self, held: Held, group: asyncio.TaskGroup) -> bool:
        """Record an orphan's start before it is started, once for all its batches; give whether it may be."""
        if not held.delivery.orphan:
            return True
        if held.trial is None:
            held.trial = group.create_task(self._try(held), name="start of an orphan")
        return await held.trial

    async def _try(self, held: Held) -> bool:
        """Count a start; one that was started often enough is a dead letter."""
        starts = 1 + await through_outages(self._consumer.start, held.delivery)
        if starts <= MOST_STARTS:
            return True
        await through_outages(self._consumer.bury, held.delivery, f"its worker died {starts - 1} times")
        self._answers.fail(held, DeadLettered(f"the job's worker died each of the {starts - 1} times that it was run"))
        return False
