"""Whatever is sent to any endpoint that takes a body gets a status that the OpenAPI document has, and never a 5xx."""

import asyncio
import io
import json
from collections import Counter
from functools import cache
from typing import Any

import aiohttp
import pytest

from tests.api.conformity import check, described
from tests.api.conftest import Api, raw

SECRET = "a text that is nobody else's business"
JSON = {"Content-Type": "application/json"}
NESTED = b"[" * 100_000 + b"]" * 100_000


@cache
def endpoints() -> dict[str, dict[str, Any]]:
    """Give the example of each path's body, made of what its schema requires, by the path."""
    document = described()
    posts = {path: methods["post"] for path, methods in document["paths"].items() if "post" in methods}
    schemas = document["components"]["schemas"]
    return {
        path: example(post["requestBody"]["content"]["application/json"]["schema"], schemas)
        for path, post in posts.items()
        if "application/json" in post.get("requestBody", {}).get("content", ())
    }


def example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Make a value that a schema allows."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return example(choices[0], schemas)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        wanted = {*schema.get("required", ()), *(name for name in ("model",) if name in properties)}
        return {name: "m" if name == "model" else example(properties[name], schemas) for name in wanted}
    if schema.get("type") == "array":
        return [example(schema.get("items", {"type": "string"}), schemas)]
    return {"string": "a", "integer": 1, "number": 1.0, "boolean": True, "null": None}[schema.get("type", "string")]


def odd_bodies(body: dict[str, Any]) -> list[bytes]:
    """Spoil a body, as a whole and field by field."""
    whole = json.dumps(body).encode()
    odd = [b"", b"null", b"[]", b"3", b'"a"', SECRET.encode(), whole[:-1], whole + b"x", b"\xff\xfe" + whole, NESTED]
    odd += [b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"model":NaN}', b"{}", b'{"model":"m","model":"m"}']
    for field in body:
        odd += [json.dumps({**body, field: value}).encode() for value in ODD]
        odd += [_with(body, field, text) for text in ODD_JSON]
    return odd


ODD: list[Any] = [None, True, "", [], {}, [[]], [""], ["", ""], [None], [{}], [{"text": SECRET}], "a\x00b", 10**400, -1]
ODD += [1.5, [1.5], [[1, 2], "a"], ["a", 1], [10**400], "\N{GRINNING FACE}" * 1000, ["a"] * 2049, " ", "\u202e"]
ODD_JSON = [
    b"NaN",
    b"-Infinity",
    b'"\\ud83d"',
    b'["\\udc00"]',
    b'"\xed\xa0\xbd"',
    b"1e999",
    b"[1,]",
    b'{"a":NaN}',
    NESTED,
]


def _with(body: dict[str, Any], field: str, text: bytes) -> bytes:
    return json.dumps({**body, field: "HERE"}).encode().replace(b'"HERE"', text)


def path_of(path: str) -> str:
    return path.replace("{id}", "m")


@pytest.mark.parametrize("path", endpoints())
async def test_what_is_odd(path: str, api: Api) -> None:
    turns = asyncio.Semaphore(16)
    async with aiohttp.ClientSession(api.url, headers=JSON) as session:

        async def post(data: bytes) -> int:
            async with turns, session.post(path_of(path), data=io.BytesIO(data)) as response:
                text = await response.text()
            assert response.status < 500, (data[:200], text)
            assert SECRET not in text or response.status == 200, data[:200]
            if response.content_type == "application/json":
                check(path, response.status, json.loads(text))
            return response.status

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(post(data)) for data in odd_bodies(endpoints()[path])]
    statuses = Counter(task.result() for task in asked)
    assert statuses[400] + statuses[422] > 20, statuses
    assert not [line for line in api.log if "Traceback" in line or SECRET in line]


@pytest.mark.parametrize("path", endpoints())
async def test_wrong_content_types(path: str, api: Api) -> None:
    async with aiohttp.ClientSession(api.url) as session:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "nonsense"):
            async with session.post(path_of(path), data=b"{}", headers={"Content-Type": kind}) as response:
                assert response.status == 415, kind
                check(path, 415, await response.json())


@pytest.mark.parametrize("path", endpoints())
async def test_a_wrong_method_and_no_key_are_told_of_as_all_errors_there(path: str, api: Api, guarded: Api) -> None:
    for url, method, status in ((api.url, "DELETE", 405), (guarded.url, "POST", 401)):
        async with aiohttp.ClientSession(url) as session, session.request(method, path_of(path)) as response:
            assert response.status == status
            check(path, 401, await response.json())


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", endpoints())
async def test_a_long_body_is_refused_before_it_has_come(path: str, chunked: bool, api: Api) -> None:
    """The answer is there while the sender still has most of the body to send."""
    head = f"POST {path_of(path)} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    async with raw(api) as (reader, writer):
        if chunked:
            writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for _ in range(5):
                writer.write(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")  # there is no last one
        else:
            writer.write(f"{head}Content-Length: 100000000\r\n\r\n[1,2".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        length = int(answer.lower().partition(b"content-length:")[2].split()[0])
        body = json.loads(await asyncio.wait_for(reader.readexactly(length), 10))
    assert b" 413 " in answer.splitlines()[0]
    check(path, 413, body)
