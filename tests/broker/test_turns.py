"""Turns between keys: who is served next, and who is refused."""

import asyncio
import itertools

import pytest

from infinity_pool.broker.errors import Overloaded
from infinity_pool.broker.messages import Job, Result
from infinity_pool.broker.outbox import Group, QueueLimits, Ticket
from infinity_pool.broker.turns import Turns

_numbers = itertools.count()


def ticket(key: str, cost: int = 10, ttl_ms: int | None = None) -> Ticket:
    job = Job(f"{key}-{next(_numbers)}", "embed", ["a"], {}, "r", "online", cost, ttl_ms)
    return Ticket("m", job, asyncio.get_running_loop().create_future())


class Queue:
    """What was released, and is answered by the test."""

    def __init__(self, room: int, limits: QueueLimits | None = None, little: int = 0) -> None:
        self.released: list[Ticket] = []
        self.turns = Turns(self._take, lambda: room, lambda: little, lambda: limits or QueueLimits(tokens=1000))

    @property
    def keys(self) -> str:
        """Those of what is released and not answered, in order."""
        return "".join(one.job.id.partition("-")[0] for one in self.released)

    def _take(self, group: Group) -> None:
        self.released += group

    async def answer(self, count: int) -> list[str]:
        """Answer the oldest jobs, one by one, and name the keys they are of."""
        done, self.released = self.released[:count], self.released[count:]
        for one in done:
            one.future.set_result(Result(one.job.id, [], 1))
            await asyncio.sleep(0)  # its callbacks run in the loop's next turn
        return [one.job.id.partition("-")[0] for one in done]


async def served(queue: Queue, count: int) -> str:
    keys = ""
    while len(keys) < count and queue.released:
        keys += "".join(await queue.answer(1))
    return keys


async def test_who_sends_much_waits_behind_their_own() -> None:
    queue = Queue(room=20)
    queue.turns.add("a", 1.0, [ticket("a") for _ in range(50)])
    assert len(queue.released) == 2
    queue.turns.add("b", 1.0, [ticket("b")])

    assert await served(queue, 4) == "aaba"


async def test_by_weight() -> None:
    queue = Queue(room=10)
    queue.turns.add("a", 3.0, [ticket("a") for _ in range(60)])
    queue.turns.add("b", 1.0, [ticket("b") for _ in range(60)])

    order = await served(queue, 80)

    assert order.count("a") == pytest.approx(60, abs=2)
    assert order[:40].count("a") == pytest.approx(30, abs=1)


async def test_a_little_of_a_key_needs_no_room() -> None:
    queue = Queue(room=100, little=30)
    queue.turns.add("a", 1.0, [ticket("a") for _ in range(50)])
    queue.turns.add("b", 1.0, [ticket("b") for _ in range(10)])

    assert queue.keys == "a" * 10 + "b"
    await queue.answer(2)
    assert queue.keys == "a" * 8 + "b" + "abab"  # what there was no room for takes none of the others'


async def test_nor_does_a_little_where_a_batch_takes_longer_than_the_work_that_is_ahead() -> None:
    queue = Queue(room=60, little=500)
    queue.turns.add("a", 1.0, [ticket("a") for _ in range(50)])
    queue.turns.add("b", 1.0, [ticket("b") for _ in range(10)])

    assert queue.keys == "a" * 6 + "b"


async def test_a_key_alone_has_no_more_than_there_is_room_for() -> None:
    queue = Queue(room=60, little=500)
    for _ in range(50):
        queue.turns.add("a", 1.0, [ticket("a")])

    assert queue.keys == "a" * 6


async def test_only_when_it_is_its_turn() -> None:
    queue = Queue(room=100, little=30)
    queue.turns.add("a", 1.0, [ticket("a") for _ in range(20)])
    queue.turns.add("b", 1.0, [ticket("b", cost=25)])
    await queue.answer(11)  # its job is answered, and has counted
    queue.turns.add("b", 0.1, [ticket("b", cost=25) for _ in range(2)])
    assert queue.keys.count("b") == 1

    order = await served(queue, 12)

    assert order.count("b") == 2
    assert order.endswith("b")


async def test_nor_have_many_that_each_send_little_more_than_there_is_room_for() -> None:
    queue = Queue(room=100, little=30)
    for key in range(100):
        queue.turns.add(f"k{key}", 1.0, [ticket("k") for _ in range(3)])

    assert len(queue.released) == 20


async def test_tokens_count_not_jobs() -> None:
    queue = Queue(room=1)
    queue.turns.add("a", 1.0, [ticket("a", cost=40) for _ in range(10)])
    queue.turns.add("b", 1.0, [ticket("b", cost=10) for _ in range(40)])

    order = await served(queue, 25)

    assert order.count("a") == pytest.approx(5, abs=1)


async def test_silence_is_not_saved_up() -> None:
    queue = Queue(room=1)
    queue.turns.add("a", 1.0, [ticket("a") for _ in range(100)])
    await served(queue, 50)
    queue.turns.add("b", 1.0, [ticket("b") for _ in range(20)])

    assert (await served(queue, 20)).count("b") == pytest.approx(10, abs=1)


async def test_who_went_away_costs_no_turn() -> None:
    queue = Queue(room=1)
    gone = [ticket("a", cost=100) for _ in range(5)]
    queue.turns.add("a", 1.0, [ticket("a"), *gone, ticket("a")])
    queue.turns.add("b", 1.0, [ticket("b", cost=30) for _ in range(3)])
    for one in gone:
        one.future.cancel()
    await asyncio.sleep(0)

    assert await served(queue, 5) == "abab" + "b"


async def test_one_job_at_least_is_released_whatever_it_costs() -> None:
    queue = Queue(room=0)
    queue.turns.add("a", 1.0, [ticket("a", cost=5000), ticket("a")])

    assert len(queue.released) == 1
    assert await served(queue, 2) == "aa"


async def test_a_key_is_refused_by_its_own_part() -> None:
    queue = Queue(room=1, limits=QueueLimits().at(speed=10.0))  # 70 tokens of work within 10 s, all keys together
    for key in ("a", "b"):
        queue.turns.add(key, 1.0, [ticket(key, ttl_ms=10_000) for _ in range(5)])
    with pytest.raises(Overloaded) as caught:
        queue.turns.add("a", 1.0, [ticket("a", ttl_ms=10_000)])
    assert caught.value.retry_after == pytest.approx(40 / 5)
    queue.turns.add("c", 1.0, [ticket("c", ttl_ms=10_000)])


async def test_keys_that_are_gone_are_forgotten() -> None:
    queue = Queue(room=10**9)
    for number in range(5000):
        queue.turns.add(f"k{number}", 1.0, [ticket("k")])
        await queue.answer(1)

    assert len(queue.turns._lines) <= 1025
