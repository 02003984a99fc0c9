"""What is held, how much room there is beside it, and what counts as the same job."""

import asyncio

from infinity_pool.broker.consumer import Delivery
from infinity_pool.broker.messages import Job, Lane
from infinity_pool.workers.loop.held import Held
from infinity_pool.workers.loop.holdings import Holdings


def delivery(entry: str, job_id: str = "job", lane: Lane = "online", cost: int = 10, key: str = "") -> Delivery:
    job = Job(job_id, "embed", ["text"], {}, "replies", lane, cost, key=key)
    return Delivery(entry.encode(), lane, job, 1, cost, 100, 0.0, None)


def hold(holdings: Holdings, one: Delivery) -> Held:
    assert one.job
    held = Held(one, one.job)
    holdings.add(held)
    return held


async def test_online_work_has_room_beside_online_work_and_bulk_beside_everything() -> None:
    holdings = Holdings(100)
    hold(holdings, delivery("1-0", "a", "online", 30))
    hold(holdings, delivery("1-0", "b", "bulk", 50))  # ids are of one lane
    assert await holdings.room("online", 0.01) == 70
    assert await holdings.room("bulk", 0.01) == 20
    assert holdings.entries("online") == holdings.entries("bulk") == [b"1-0"]


def test_a_key_has_little_where_others_have_more_in_its_lane() -> None:
    holdings = Holdings(1000)
    loud = [hold(holdings, delivery(f"1-{n}", f"loud{n}", cost=40, key="loud")) for n in range(3)]
    quiet = hold(holdings, delivery("2-0", "quiet", cost=40, key="quiet"))
    bulk = hold(holdings, delivery("2-0", "bulk", "bulk", 40, "quiet"))

    assert holdings.is_little(quiet, little=100, much=100)
    assert holdings.is_little(quiet, little=200, much=100)  # where no batch is full either
    assert not holdings.is_little(quiet, little=39, much=30)  # more than that itself
    assert not holdings.is_little(quiet, little=200, much=120)  # the others have no more than that
    assert not holdings.is_little(loud[0], little=100, much=20)
    assert not holdings.is_little(bulk, little=100, much=0)  # alone in its lane
    for one in loud[:2]:
        holdings.remove(one)
    assert not holdings.is_little(quiet, little=100, much=20)  # they have as much as it has


async def test_room_is_waited_for() -> None:
    holdings = Holdings(10)
    held = hold(holdings, delivery("1-0"))
    assert await holdings.room("online", 0.01) == 0
    waiting = asyncio.create_task(holdings.room("online", 5))
    await asyncio.sleep(0)
    holdings.remove(held)
    assert await waiting == 10


def test_an_entry_that_comes_back_is_the_one_held() -> None:
    holdings = Holdings(100)
    hold(holdings, delivery("1-0"))
    assert holdings.has(delivery("1-0"))
    assert not holdings.has(delivery("2-0"))
    assert not holdings.has(delivery("1-0", lane="bulk"))


async def test_a_job_queued_again_while_its_answer_may_be_lost_is_held_anew() -> None:
    holdings = Holdings(100)
    first = hold(holdings, delivery("1-0"))
    assert holdings.will_answer("job")

    first.settled = True
    assert not holdings.will_answer("job")
    again = hold(holdings, delivery("2-0"))
    holdings.remove(first)
    holdings.remove(first)

    assert holdings.will_answer("job")
    assert holdings.all() == [again]
    holdings.remove(again)
    assert not holdings.will_answer("job")
    assert await holdings.room("online", 0.01) == 100


def test_what_nobody_wants_is_let_go_unless_its_answer_is_under_way() -> None:
    holdings = Holdings(100)
    wanted, answered = hold(holdings, delivery("1-0", "a")), hold(holdings, delivery("2-0", "b"))
    answered.settled = True
    holdings.drop(["a", "b", "c"])
    assert wanted.settled
    assert holdings.all() == [answered]
