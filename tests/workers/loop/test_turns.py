import asyncio

from infinity_pool.broker.messages import Lane
from infinity_pool.workers.loop.turns import Turns


async def test_online_goes_first_and_each_lane_by_age() -> None:
    turns, order = Turns(1), []

    async def work(name: str, lane: Lane) -> None:
        async with turns.one(lane):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(
        work("first", "bulk"), work("b1", "bulk"), work("b2", "bulk"), work("o1", "online"), work("o2", "online")
    )

    assert order == ["first", "o1", "o2", "b1", "b2"]


async def test_as_many_at_once_as_there_are_places() -> None:
    turns, inside, most = Turns(2), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with turns.one("bulk"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(9)))

    assert (inside, most) == (0, 2)


async def test_who_gives_up_leaves_the_place_to_the_next() -> None:
    turns = Turns(1)
    release = asyncio.Event()

    async def hold() -> None:
        async with turns.one("online"):
            await release.wait()

    holding, waiting, next_one = (asyncio.create_task(hold()) for _ in range(3))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()

    await asyncio.wait_for(asyncio.gather(holding, next_one), 5)
    async with asyncio.timeout(5), turns.one("bulk"):
        pass
