"""What is nobody's business is not in the log, at its most talkative."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import aiohttp

from tests.api.conftest import Api, Held, until
from tests.broker.deployments import PASSWORD, with_password

SECRET = "nobody-else's-business"
SECRETS = (SECRET, PASSWORD, quote(PASSWORD, safe=""))
JSON = {"Content-Type": "application/json"}


async def test_bodies_and_passwords_are_not_logged(start_api: Callable[..., Api], tmp_path: Path) -> None:
    with with_password(tmp_path) as url:
        api = start_api("--log-level", "debug", "--strict-model-names", redis_url=url)
        held = Held(url)
        await held.join()
        async with aiohttp.ClientSession(api.url, headers=JSON) as session:
            for body, status in ((_body(held.model, [SECRET]), 200), (_body(held.model, SECRET)[:-1], 400)):
                asked = asyncio.create_task(_post(session, body))
                if status == 200:
                    await held.answer(await held.take())
                assert await asked == status
            assert await _post(session, _body("absent", SECRET)) == 404
            await held.close()
    await until(lambda: _told(api))  # that there is no server any more
    assert any("DEBUG" in line for line in api.log)
    api.stop()
    assert not [line for line in api.log if any(secret in line for secret in SECRETS)]


async def test_a_redis_url_that_is_wrong_is_not_logged(start_api: Callable[..., Api]) -> None:
    api = start_api("--log-level", "debug", redis_url=f"redis://user:{quote(PASSWORD, safe='')}@127.0.0.1:1/0")
    async with aiohttp.ClientSession(api.url, headers=JSON) as session:
        assert await _post(session, _body("m", SECRET)) == 503
    await until(lambda: _told(api))
    api.stop()
    assert not [line for line in api.log if any(secret in line for secret in SECRETS)]


async def _told(api: Api) -> bool:
    """Whether the outage is in the log."""
    return any("WARNING" in line or "ERROR" in line for line in api.log)


def _body(model: str, texts: str | list[str]) -> bytes:
    return json.dumps({"model": model, "input": texts}).encode()


async def _post(session: aiohttp.ClientSession, body: bytes) -> int:
    async with session.post("/v1/embeddings", data=body) as response:
        await response.read()
        return response.status
