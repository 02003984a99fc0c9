"""Every process is replaced by a new one while requests are answered, all of them."""

from collections.abc import Callable
from typing import Any

from infinity_pool.broker import keys

from .balancer import Balancer
from .conftest import Stack
from .load import Load
from .patience import PROMPT
from .processes import Api, Worker

Start = Callable[..., Any]


async def test_a_rolling_upgrade_costs_no_caller_anything(stack: Stack, start: Start) -> None:
    def worker() -> Worker:
        begun: Worker = start(Worker, stack.server.url, "rolling", model="dummy:0.005")
        return begun

    def api() -> Api:
        begun: Api = start(Api, stack.server.url, "--shutdown-delay", "1")
        return begun

    workers, apis = [worker(), worker()], [api().ready(), api().ready()]
    async with Balancer(lambda: [each.url for each in apis], "rolling") as balancer:
        await balancer.until(*(each.url for each in apis))
        for each in workers:
            each.ready()
        async with Load(balancer.ready, "rolling", clients=16) as load:
            for _ in range(2):
                workers.append(worker().ready())
                old = workers.pop(0)
                old.process.terminate()
                await load.more(100)
                assert old.wait() == 0
            for _ in range(2):
                apis.append(api().ready())
                await balancer.until(*(each.url for each in apis))
                apis[0].process.terminate()
                await load.more(100)
                assert apis[0].wait() == 0
                del apis[0]
            await load.more(100)
    assert load.tally.flawless(), load.tally
    assert load.tally.longest < PROMPT
    assert len(stack.server.commands.xinfo_consumers(keys.jobs("rolling", "online"), keys.GROUP)) == 2
