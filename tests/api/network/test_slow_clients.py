"""Who connects and is silent: closed or told so, while whoever makes progress is heard."""

import asyncio
import json
import time
from collections.abc import Callable

import aiohttp
import pytest

from tests.api.conftest import Api, Process, _until_ready, raw

PATIENCE, KEEP_ALIVE = 1.0, 1.5  # s
LONG = 20.0  # s, in which what should come has come
BODY = json.dumps({"model": "m", "input": "a text", "padding": "-" * 5500}).encode()
HEAD = f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()


@pytest.fixture(scope="module")
def hasty(start_api: Callable[..., Api], worker: Process) -> Api:
    api = start_api("--read-timeout", str(PATIENCE), "--keep-alive", str(KEEP_ALIVE), "--files", "memory://slow")
    asyncio.run(_until_ready(api.url, "m"))
    return api


async def test_a_head_that_does_not_come_is_not_waited_for(hasty: Api) -> None:
    async def heard_after(sent: bytes) -> bytes:
        async with raw(hasty) as (reader, writer):
            writer.write(sent)
            return await asyncio.wait_for(reader.read(), LONG)

    assert await asyncio.gather(*map(heard_after, (b"", b"POST /v1/emb", HEAD[:-4]))) == [b"", b"", b""]


async def test_a_head_that_comes_in_drops_is_not_waited_for(hasty: Api) -> None:
    async with raw(hasty) as (reader, writer):
        ended = asyncio.create_task(reader.read())
        async with asyncio.timeout(LONG):
            for byte in HEAD * 100:
                writer.write(bytes([byte]))
                if (await asyncio.wait({ended}, timeout=PATIENCE / 10))[0]:
                    break
        assert await ended == b""


async def test_a_body_that_does_not_come_is_told_so_in_the_dialect(hasty: Api) -> None:
    async def told(path: str, field: str) -> None:
        async with raw(hasty) as (reader, writer):
            writer.write(HEAD.replace(b"/v1/embeddings", path.encode()) + BODY[:100])
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG)).decode().lower()
            answer = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        assert head.startswith("http/1.1 408 ")
        assert "connection: close" in head
        assert b"within 1 s" in answer
        assert field in json.loads(answer)

    await asyncio.gather(told("/v1/embeddings", "error"), told("/v2/embed", "message"), told("/embed", "error_type"))


async def test_a_slow_body_that_comes_is_answered(hasty: Api) -> None:
    async with raw(hasty) as (reader, writer):
        writer.write(HEAD)
        for first in range(0, len(BODY), 500):
            writer.write(BODY[first : first + 500])
            await asyncio.sleep(PATIENCE / 10)
        assert b" 200 " in await asyncio.wait_for(reader.readline(), LONG)


async def test_a_slow_upload_that_comes_is_taken_and_one_that_stands_still_is_not(hasty: Api) -> None:
    boundary = "b" * 60  # as many bytes are awaited at once, which take longer than one look
    named = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    form = f'{named}purpose"\r\n\r\nbatch\r\n{named}file"; filename="f"\r\n\r\n'.encode()
    rest = f"{{}}\r\n--{boundary}--\r\n".encode()
    kind = f"Content-Type: multipart/form-data; boundary={boundary}"
    head = f"POST /v1/files HTTP/1.1\r\nHost: x\r\n{kind}\r\nContent-Length: {len(form + rest)}\r\n\r\n".encode()

    async def answer(drops: list[bytes]) -> str:
        async with raw(hasty) as (reader, writer):
            writer.write(head + form)
            for drop in drops:
                writer.write(drop)
                await asyncio.sleep(PATIENCE / 10)
            return (await asyncio.wait_for(reader.readuntil(b"}"), LONG)).decode()

    slow, still = await asyncio.gather(answer([rest[at : at + 3] for at in range(0, len(rest), 3)]), answer([rest[:9]]))
    assert " 200 " in slow
    assert " 408 " in still
    async with aiohttp.ClientSession(hasty.url) as session:  # other tests count the files that there are
        file_id = slow.partition('"id":"')[2].partition('"')[0]
        async with session.delete(f"/v1/files/{file_id}") as deleted:
            assert deleted.status == 200


async def test_a_connection_without_requests_ends_after_some_time(hasty: Api) -> None:
    started = time.monotonic()
    async with raw(hasty) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        heard = await asyncio.wait_for(reader.read(), LONG)
    assert heard.count(b" 200 ") == 1
    assert time.monotonic() - started > (PATIENCE + KEEP_ALIVE) / 2
