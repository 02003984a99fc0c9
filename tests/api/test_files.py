"""/files by OpenAI's own client, and as forms that no client sends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import openai
import pytest

from .conformity import check
from .conftest import Api, raw

LIMIT = 300_000


@pytest.fixture(scope="module")
def files_api(start_api: Callable[..., Api]) -> Api:
    return start_api("--files", "memory://files", "--max-file", str(LIMIT), "--cors-origin", "https://app.example")


@pytest.fixture
async def client(files_api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{files_api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def session(files_api: Api) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(files_api.url) as session:
        yield session


async def test_the_life_of_a_file(client: openai.AsyncOpenAI) -> None:
    data = bytes(range(256)) * 1000
    kept: Any = {"anchor": "created_at", "seconds": 3600}
    file = await client.files.create(file=("../some.jsonl", data), purpose="batch", expires_after=kept)
    check("/files/{id}", 200, file.model_dump(exclude={"status_details"}), "get")
    assert (file.bytes, file.filename, file.purpose) == (len(data), "some.jsonl", "batch")
    assert file.expires_at == file.created_at + 3600
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == data
    assert [each.id async for each in client.files.list()] == [file.id]

    deleted = await client.files.delete(file.id)
    assert (deleted.id, deleted.deleted) == (file.id, True)
    assert [each async for each in client.files.list()] == []
    for gone in (client.files.retrieve(file.id), client.files.content(file.id), client.files.delete(file.id)):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            await gone


async def test_lists_are_given_by_pages(client: openai.AsyncOpenAI) -> None:
    made = [(await client.files.create(file=(f"{n}", b"a"), purpose="batch")).id for n in range(5)]
    assert [file.id async for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id async for file in client.files.list(limit=2, order="asc", after=made[1])] == made[2:]
    assert [file async for file in client.files.list(purpose="batch_output")] == []
    with pytest.raises(openai.BadRequestError) as caught:
        await client.files.list(after="file-none")
    assert caught.value.param == "after"
    for file_id in made:
        await client.files.delete(file_id)


def form(*parts: tuple[str, str | bytes]) -> aiohttp.MultipartWriter:
    """Make a form of parts in their order."""
    writer = aiohttp.MultipartWriter("form-data")
    for name, value in parts:
        part = writer.append(value)
        file = {"filename": "a"} if name == "file" else {}
        part.set_content_disposition("form-data", True, "utf-8", name=name, **file)
    return writer


@pytest.mark.parametrize(
    ("parts", "status", "param"),
    [
        ([("file", b"a"), ("purpose", "batch")], 200, None),
        ([("purpose", "batch"), ("file", b"a")], 200, None),
        ([("purpose", "fine-tune"), ("file", b"a" * 100_000)], 400, "purpose"),
        ([("file", b"a"), ("purpose", "assistants")], 400, "purpose"),
        ([("file", b"a")], 400, "purpose"),
        ([("purpose", "batch")], 400, "file"),
        ([("file", b"a"), ("file", b"b"), ("purpose", "batch")], 400, "file"),
        ([("file", b"a"), ("purpose", b"\xff")], 400, "purpose"),
        ([("file", b"a"), ("purpose", b"x" * 5000)], 400, "purpose"),
        ([(f"more{number}", b"a") for number in range(17)], 400, None),
        ([("file", b"a"), ("purpose", b"batch"), ("expires_after[anchor]", b"created_at")], 400, None),
        ([("purpose", "batch"), ("file", b"a" * (LIMIT + 1))], 413, None),
        ([("purpose", "batch"), ("file", b"a" * (2 * LIMIT))], 413, None),
    ],
)
async def test_forms(
    session: aiohttp.ClientSession, parts: list[tuple[str, bytes]], status: int, param: str | None
) -> None:
    async with session.post("/files", data=form(*parts)) as response:
        answer = await response.json()
    check("/files", response.status, answer)
    assert response.status == status, answer
    assert answer.get("error", {}).get("param") == param
    async with session.get("/files") as response:
        listed = await response.json()
    assert len(listed["data"]) == (status == 200)
    for file in listed["data"]:
        async with session.delete(f"/files/{file['id']}") as response:
            check("/files/{id}", response.status, await response.json(), "delete")


async def test_what_is_no_form(session: aiohttp.ClientSession, files_api: Api) -> None:
    async with session.post("/files", json={"purpose": "batch"}) as response:
        assert response.status == 415
    packed = {"Content-Type": "multipart/form-data; boundary=b", "Content-Encoding": "snappy"}
    async with session.post("/files", data=b"a", headers=packed) as response:
        assert response.status == 415
        check("/files", 415, await response.json())
    for data, kind in ((b"a", "multipart/form-data"), (b"--b\r\n\r\ncut", "multipart/form-data; boundary=b")):
        async with session.post("/files", data=data, headers={"Content-Type": kind}) as response:
            assert response.status == 400
            check("/files", 400, await response.json())
    async with session.post("/files", data=form(("file", b"a")), headers={"Origin": "https://evil"}) as response:
        assert response.status == 403
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "DELETE"}
    async with session.options("/files/a", headers=preflight) as response:
        assert "DELETE" in response.headers["Access-Control-Allow-Methods"]


async def test_a_name_that_is_no_text(session: aiohttp.ClientSession) -> None:
    parts = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\nbatch\r\n'
    data = parts % (b"purpose", b"") + parts % (b"file", b'; filename="\xff.a"') + b"--b--"
    async with session.post(
        "/files", data=data, headers={"Content-Type": "multipart/form-data; boundary=b"}
    ) as response:
        file = await response.json()
    assert (response.status, file["filename"]) == (200, "?.a")
    async with session.delete(f"/files/{file['id']}") as response:
        assert response.status == 200


@pytest.mark.parametrize("half", [False, True])
async def test_who_hangs_up_leaves_nothing(session: aiohttp.ClientSession, files_api: Api, half: bool) -> None:
    async with raw(files_api) as (reader, writer):
        writer.write(
            b"POST /files HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9999"
            b'\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"a" * 1000
        )
        if half:
            writer.write_eof()
            await reader.read()
        else:
            await writer.drain()
            await asyncio.sleep(0.05)
    async with session.get("/files") as response:
        assert (await response.json())["data"] == []
    assert not [line for line in files_api.log if "ERROR" in line]


async def test_without_files(start_api: Callable[..., Api]) -> None:
    async with aiohttp.ClientSession(start_api().url) as session:
        for path in ("/v1/files", "/v1/batches"):
            async with session.get(path) as response:
                assert response.status == 400
                assert "--files" in (await response.json())["error"]["message"]
