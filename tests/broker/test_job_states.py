"""Drives the queue through the states of docs/job.md, in any order that hypothesis can think of, on the real server."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import connect
from infinity_pool.broker.consumer import Consumer, Delivery
from infinity_pool.broker.messages import Job, Lane, Result, decode_replies, encode_job
from infinity_pool.broker.presence import WorkerInfo, beat, forget_worker

T = TypeVar("T")

REPLIES = keys.replies("listener")
LANE_NAMES: list[Lane] = ["online", "bulk"]
STREAMS = [keys.jobs("m", "online"), keys.jobs("m", "bulk"), keys.waiting("m")]


class Queue(RuleBasedStateMachine):
    """Jobs, and the workers that hold them; what a crash takes along is only what was in a worker's memory."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = self.run(self.connect())
        self.jobs: dict[str, tuple[Lane, int]] = {}
        self.held: dict[str, list[Delivery]] = {}
        self.consumers: dict[str, Consumer] = {}
        self.stopped: list[Delivery] = []  # in the hands of workers that were taken for dead and are not
        self.settled: set[str] = set()
        self.count = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def connect(self) -> Any:
        redis = connect(self.url)
        await redis.flushall()
        await redis.xadd(REPLIES, {"made": ""})
        return redis

    @initialize()
    def two_workers(self) -> None:
        self.start_worker()
        self.start_worker()

    def start_worker(self) -> str:
        self.count += 1
        name = f"w{self.count}"
        self.consumers[name], self.held[name] = Consumer(self.url, "m", name), []
        self.run(beat(self.redis, WorkerInfo(id=name, model="m", state="ready"), expiry=60.0))
        self.run(self.consumers[name].join())
        return name

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.consumers)))

    @rule(lane=st.sampled_from(LANE_NAMES), costs=st.lists(st.integers(1, 50), min_size=1, max_size=4))
    def submit(self, lane: Lane, costs: list[int]) -> None:
        for cost in costs:
            self.count += 1
            job = Job(f"j{self.count}", "embed", ["x"], {}, REPLIES, lane, cost)
            args = [1e6, 1e9, 1, 1e9, LANE_NAMES.index(lane) + 1, cost, 1, encode_job(job)]
            self.run(scripts.run(self.redis, "submit", STREAMS, args))
            self.jobs[job.id] = lane, cost

    @precondition(lambda self: len(self.jobs) > len(self.settled))
    @rule(lane=st.sampled_from(LANE_NAMES), budget=st.integers(1, 200), data=st.data())
    def take(self, lane: Lane, budget: int, data: st.DataObject) -> None:
        name = self.pick(data)
        self.held[name] += self.run(self.take_now(name, lane, budget))

    async def take_now(self, name: str, lane: Lane, budget: int) -> list[Delivery]:
        consumer = self.consumers[name]  # its own `take` would wait at an empty lane
        return consumer._deliveries(
            lane, *await consumer._run_take(self.redis, keys.jobs("m", lane), budget), orphan=False
        )

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), twice=st.booleans())
    def answer(self, data: st.DataObject, twice: bool) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, held in self.held.items() if held)))
        delivery = data.draw(st.sampled_from(self.held[name]))
        self.held[name].remove(delivery)
        for _ in range(1 + twice):
            self.settle(name, delivery)

    def settle(self, name: str, delivery: Delivery) -> None:
        assert delivery.job is not None
        self.run(self.consumers[name].answer([(delivery, Result(delivery.job.id, [1.0], 1))]))
        self.settled.add(delivery.job.id)

    @precondition(lambda self: self.stopped)
    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        self.settle(self.pick(data), self.stopped.pop())

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def reply_to_a_read_is_lost(self, data: st.DataObject) -> None:
        self.held[self.pick(data)] = []

    @rule(lane=st.sampled_from(LANE_NAMES), data=st.data())
    def recover(self, lane: Lane, data: st.DataObject) -> None:
        name = self.pick(data)
        mine = [one.entry for one in self.held[name] if one.lane == lane]
        found = self.run(self.consumers[name].recover(lane, mine))
        assert not {one.entry for one in found} & set(mine)
        self.held[name] += found

    @rule(data=st.data())
    def a_worker_dies_and_another_starts(self, data: st.DataObject) -> None:
        self.bury(self.pick(data))
        self.start_worker()

    def bury(self, name: str) -> None:
        self.run(forget_worker(self.redis, "m", name))
        self.run(self.consumers.pop(name).close())
        self.stopped += self.held.pop(name)

    @rule(lane=st.sampled_from(LANE_NAMES), most=st.integers(1, 5), data=st.data())
    def reap(self, lane: Lane, most: int, data: st.DataObject) -> None:
        self.reap_as(self.pick(data), lane, most)

    def reap_as(self, name: str, lane: Lane, most: int) -> None:
        for dead in self.run(self.consumers[name].dead(lane)):
            found = self.run(self.consumers[name].reap(lane, dead, most))
            assert all(one.orphan for one in found)
            self.held[name] += found

    @invariant()
    def counters_say_what_is_there(self) -> None:
        counts = self.run(self.redis.hgetall(keys.waiting("m")))
        open_jobs = [what for job, what in self.jobs.items() if job not in self.settled]
        for lane in LANE_NAMES:
            mine = [cost for its, cost in open_jobs if its == lane]
            items, tokens = (int(counts.get(f"{lane}:{unit}".encode(), 0)) for unit in ("items", "tokens"))
            assert (items, tokens) == (len(mine), sum(mine))
            assert self.run(self.redis.xlen(keys.jobs("m", lane))) == len(mine)

    @invariant()
    def no_two_hold_the_same(self) -> None:
        entries = [(one.lane, one.entry) for held in self.held.values() for one in held]
        assert len(entries) == len(set(entries))

    def teardown(self) -> None:
        """Let one more worker do what is left: each job is then answered, and nothing remains."""
        last = self.start_worker()
        for name in [name for name in self.consumers if name != last]:
            self.bury(name)
        for lane in LANE_NAMES:
            for _ in range(len(self.jobs) + 1):
                self.reap_as(last, lane, 1000)
            self.held[last] += self.run(self.take_now(last, lane, 10**9))
        for delivery in self.held[last]:
            self.settle(last, delivery)
        self.counters_say_what_is_there()
        assert self.run(self.answered()) == set(self.jobs)
        self.run(self.close(last))
        self.runner.close()

    async def answered(self) -> set[str]:
        entries = await self.redis.xrange(REPLIES)
        return {reply.job_id for _, fields in entries if b"r" in fields for reply in decode_replies(fields[b"r"])}

    async def close(self, last: str) -> None:
        for lane in LANE_NAMES:
            assert (await self.redis.xpending(keys.jobs("m", lane), keys.GROUP))["pending"] == 0
            names = [row["name"].decode() for row in await self.redis.xinfo_consumers(keys.jobs("m", lane), keys.GROUP)]
            assert set(names) <= {last}
        await self.consumers[last].close()
        await self.redis.aclose()


def test_no_order_of_events_loses_a_job_or_counts_it_twice(server_url: str) -> None:
    Queue.url = server_url
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
