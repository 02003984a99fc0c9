"""The jobs a worker holds, and how much more it has room for."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from infinity_pool.broker.consumer import Delivery
from infinity_pool.broker.messages import LANES, Lane
from infinity_pool.broker.turns import goes_ahead
from infinity_pool.workers.loop.held import Held

Place = tuple[Lane, bytes]  # where a job is in the queue: the ids of two lanes may be the same


class Holdings:
    """
    What a worker holds, counted in estimated tokens.

    It holds what it needs to stay busy and no more, for what it does not hold another worker can take. Bulk work has
    room only beside all that is held; online work beside the online work, so that it never waits behind a backfill.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._jobs: dict[Place, Held] = {}
        self._by_id: dict[str, Held] = {}  # the latest of an id; one that was queued again may be held twice
        self._cost: dict[Lane, int] = dict.fromkeys(LANES, 0)
        self._of_keys: Counter[tuple[Lane, str]] = Counter()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, held: Held) -> None:
        """Hold one more job."""
        self._jobs[_place(held.delivery)] = held
        self._by_id[held.job.id] = held
        self._count(held, held.delivery.cost)

    def has(self, delivery: Delivery) -> bool:
        """Say whether this very entry is held, as when it comes back from a worker that had taken it over."""
        return _place(delivery) in self._jobs

    def will_answer(self, job_id: str) -> bool:
        """Say whether a job of this id is held whose answer is still to be made; one under way may be lost."""
        held = self._by_id.get(job_id)
        return held is not None and not held.settled

    def remove(self, held: Held) -> None:
        """Hold it no more; once is enough."""
        if self._jobs.pop(_place(held.delivery), None) is not None:
            if self._by_id.get(held.job.id) is held:
                del self._by_id[held.job.id]
            self._count(held, -held.delivery.cost)
            self._changed.set()

    def drop(self, job_ids: Iterable[str]) -> None:
        """Let go of jobs that nobody waits for; what of them is running ends unheard."""
        for job_id in job_ids:
            held = self._by_id.get(job_id)
            if held is not None and not held.settled:
                held.settled = True
                self.remove(held)

    def is_little(self, held: Held, little: int, much: int) -> bool:
        """Say whether no more than `little` is held of a job's key, and more of others in its lane, over `much`."""
        mine = self._of_keys[held.delivery.lane, held.job.key]
        return goes_ahead(mine, self._cost[held.delivery.lane] - mine, little, much)

    def _count(self, held: Held, cost: int) -> None:
        self._cost[held.delivery.lane] += cost
        if name := held.job.key:
            self._of_keys[held.delivery.lane, name] += cost
            if not self._of_keys[held.delivery.lane, name]:
                del self._of_keys[held.delivery.lane, name]

    def entries(self, lane: Lane) -> list[bytes]:
        """Give the stream entries held of one lane."""
        return [held.delivery.entry for held in self._jobs.values() if held.delivery.lane == lane]

    def all(self) -> list[Held]:
        """Give all that is held."""
        return list(self._jobs.values())

    async def room(self, lane: Lane, patience: float) -> int:
        """Give the tokens there is room for, waiting up to `patience` seconds for some; 0 if none came free."""
        if (room := self._room(lane)) > 0:
            return room
        self._changed.clear()
        try:
            async with asyncio.timeout(patience):
                await self._changed.wait()
        except TimeoutError:
            return 0
        return max(0, self._room(lane))

    def wake(self) -> None:
        """Let those who wait for room look around."""
        self._changed.set()

    def _room(self, lane: Lane) -> int:
        held = self._cost["online"] if lane == "online" else sum(self._cost.values())
        return self.capacity - held


def _place(delivery: Delivery) -> Place:
    return delivery.lane, delivery.entry
