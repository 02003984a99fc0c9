"""A name that is not served: of the only model it is one more name, of several it is none."""

from collections.abc import Callable

import aiohttp

from infinity_pool.broker.connection import connect
from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.broker.presence import WorkerInfo, beat
from tests.api.conftest import Api, until


async def test_any_name_gives_the_only_model(start_api: Callable[..., Api]) -> None:
    async def told(api: Api) -> tuple[int, str]:
        async with aiohttp.ClientSession(api.url) as http, http.get("/v1/models/text-embedding-3-small") as response:
            answer = await response.json()
            return response.status, answer.get("id") or answer["error"]["code"]

    async def is_told(api: Api, expected: tuple[int, str]) -> bool:
        return await told(api) == expected

    with EmbeddedServer.start() as server:
        easy, strict = (start_api(*option, redis_url=server.url) for option in ((), ("--strict-model-names",)))
        async with connect(server.url) as redis:
            await beat(redis, WorkerInfo(id="1", model="one", state="ready", tasks=["embed"]), expiry=60.0)
            await until(lambda: is_told(easy, (200, "one")))
            assert await told(strict) == (404, "model_not_found")
            await beat(redis, WorkerInfo(id="2", model="two", state="ready", tasks=["embed"]), expiry=60.0)
            await until(lambda: is_told(easy, (404, "model_not_found")))
