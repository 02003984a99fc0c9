"""Whatever is sent is answered with a status that says what is wrong, never with a 500, and never with its own text."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.api.conftest import Api, Process, raw

SECRET = "a text that is nobody else's business"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "a", **fields}).encode()


BAD: dict[str, tuple[bytes, str | None, str]] = {
    "no body": (b"", None, "Invalid JSON"),
    "not JSON": (SECRET.encode(), None, "Invalid JSON"),
    "cut off": (body(input=SECRET)[:-3], None, "Invalid JSON"),
    "not UTF-8": (b'{"model":"m","input":"\xff\xfe"}', None, "Invalid JSON"),
    "a lone surrogate": (b'{"model":"m","input":"\\ud83d and so on"}', None, "hex escape"),
    "a lone surrogate in bytes": (b'{"model":"m","input":"\xed\xa0\xbd"}', None, "Invalid JSON"),
    "too deep": (b'{"model":"m","input":' + b"[" * 10_000 + b"]" * 10_000 + b"}", None, "recursion limit"),
    "no object": (b"[1, 2]", None, "object"),
    "no input": (b'{"model":"m"}', "input", "required"),
    "a model that is a number": (body(model=3), "model", "string"),
    "a model without a name": (body(model=""), "model", "at least 1"),
    "a model with a long name": (body(model="m" * 1000), "model", "at most 256"),
    "no items": (body(input=[]), "input", "at least 1"),
    "an object as input": (body(input={"words": SECRET}), "input[0]", "an object with a text or an image"),
    "null as input": (body(input=None), "input", "array"),
    "a number in the list": (body(input=["a", 5]), "input[1]", "string"),
    "null in the list": (body(input=["a", "b", None]), "input[2]", "string"),
    "a list in the list": (body(input=["a", [SECRET]]), "input[1]", "string"),
    "a text among token ids": (body(input=[1, SECRET, 3]), "input[0]", "token ids, which str is not"),
    "a text among lists of token ids": (body(input=[[1, 2], SECRET]), "input[1]", "list of token ids"),
    "a negative token id": (body(input=[[1, 2], [3, -1]]), "input[1]", "token id -1"),
    "too many items": (body(input=["a"] * 2049), "input", "2049 items, 2048 are allowed"),
    "an unknown encoding": (body(encoding_format="hex"), "encoding_format", "'float' or 'base64'"),
    "dimensions as text": (body(dimensions="5"), "dimensions", "integer"),
    "dimensions as a fraction": (body(dimensions=1.5), "dimensions", "integer"),
    "dimensions as a truth": (body(dimensions=True), "dimensions", "integer"),
    "negative dimensions": (body(dimensions=-1), "dimensions", "greater than or equal to 0"),
    "dimensions out of range": (body(dimensions=10**400), "dimensions", ""),
    "dimensions that are no number": (b'{"model":"m","input":"a","dimensions":NaN}', "dimensions", "integer"),
    "more dimensions than there are": (body(dimensions=14), "dimensions", "from 1 to 13"),
    "a user that is a number": (body(user=1), "user", "string"),
}


async def test_nothing_is_fetched_for_a_model_of_texts(http: aiohttp.ClientSession, api: Api) -> None:
    async with http.post("/v1/embeddings", data=body(input=[{"url": "http://127.0.0.1:1/a.png"}])) as response:
        assert response.status == 400
        assert "takes text, not image" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("case", BAD)
async def test_400(case: str, http: aiohttp.ClientSession, api: Api) -> None:
    data, param, words = BAD[case]

    async with http.post("/v1/embeddings", data=io.BytesIO(data)) as response:
        answer = await response.text()

    error = json.loads(answer)["error"]
    assert (response.status, error["type"], error["code"]) == (400, "invalid_request_error", "invalid_input"), answer
    assert error["param"] == param
    assert error["message"].startswith(f"{param}" if param else "")
    assert words in error["message"]
    assert SECRET not in answer


@pytest.mark.parametrize(
    "data",
    [
        body(input=""),
        body(input=["", "a"]),
        body(input="a\x00b"),
        body(input="\N{GRINNING FACE}" * 100_000),
        body(input="a", encoding_format=None, dimensions=None, user=None),
        body(input="a", unknown={"deep": [1, 2, {"er": None}]}),
        b'{"model":"absent","model":"m","input":"a"}',
        b'{"model":"m","input":"a","other":NaN}',
        b' \n{ "model" : "m" , "input" : [ "a" ] } \n',
        b'{"model":"m","input":"\\ud83d\\ude00"}',
    ],
)
async def test_odd_but_fine(data: bytes, http: aiohttp.ClientSession, api: Api) -> None:
    async with http.post("/v1/embeddings", data=io.BytesIO(data)) as response:
        assert response.status == 200, await response.text()


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("text/json", 200),
        ("application/vnd.some+json", 200),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("nonsense", 415),
    ],
)
async def test_content_types(kind: str, status: int, http: aiohttp.ClientSession, api: Api) -> None:
    async with http.post("/embeddings", data=body(), headers={"Content-Type": kind}) as response:
        answer = await response.json()

    assert response.status == status
    if status != 200:
        assert (answer["error"]["code"], answer["error"]["param"]) == ("unsupported_media_type", None)


async def test_a_form_is_taken_only_where_files_are(http: aiohttp.ClientSession, idle_api: Api) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    async with http.post("/rerank", data=body(), headers=headers) as response:
        assert response.status == 415


async def test_no_content_type_is_taken_as_json(api: Api) -> None:
    async with (
        aiohttp.ClientSession(api.url, skip_auto_headers=["Content-Type"]) as session,
        session.post("/v1/embeddings", data=body()) as response,
    ):
        assert response.status == 200


async def test_a_body_over_the_limit_is_413_before_it_comes(api: Api) -> None:
    async with raw(api) as (reader, writer):
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 4000001\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        answer = json.loads(await reader.readuntil(b"}}"))

    assert b" 413 " in head.splitlines()[0]
    assert (answer["error"]["type"], answer["error"]["code"]) == ("invalid_request_error", "request_entity_too_large")


async def test_a_body_of_unknown_length_is_413_at_the_limit(http: aiohttp.ClientSession, api: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(41):
            yield b" " * 100_000

    async with http.post("/v1/embeddings", data=chunks()) as response:
        answer = await response.json()

    assert (response.status, answer["error"]["code"]) == (413, "request_entity_too_large")


async def test_a_compressed_body(http: aiohttp.ClientSession, api: Api) -> None:
    packed = {"Content-Encoding": "gzip"}
    bomb = gzip.compress(body(input="a" * 20_000_000))

    async with http.post("/v1/embeddings", data=gzip.compress(body()), headers=packed) as response:
        assert response.status == 200
    async with http.post("/v1/embeddings", data=io.BytesIO(bomb), headers=packed) as response:
        assert response.status == 413
    for other in ("br", "compress"):
        async with http.post("/v1/embeddings", data=body(), headers={"Content-Encoding": other}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (415, "unsupported_media_type")
            assert "Content-Encoding" in error["message"]
    async with http.post("/v1/embeddings", data=b"not gzip at all", headers=packed) as response:
        assert response.status == 400, await response.text()
        assert (await response.json())["error"]["code"] == "invalid_input"


@pytest.mark.parametrize("filler", [b"[],", b'"",', b"1,", b'{"a":1},'])
async def test_a_large_body_of_small_values_is_refused_unparsed(
    filler: bytes, http: aiohttp.ClientSession, api: Api
) -> None:
    data = b'{"model":"m","input":[' + filler * (3_900_000 // len(filler)) + b'"a"]}'

    async with http.post("/v1/embeddings", data=io.BytesIO(data)) as response:
        answer = await response.json()

    assert response.status == 400
    assert answer["error"]["message"] == "the body holds too many values"


async def test_a_large_body_of_text_is_not(http: aiohttp.ClientSession, api: Api) -> None:
    texts = ['say "hello" \\ [and] {so, on}\n' * 60] * 2000

    async with http.post("/v1/embeddings", data=io.BytesIO(body(input=texts))) as response:
        answer = await response.json()

    assert response.status == 200, answer
    assert [entry["embedding"][0] for entry in answer["data"]] == [float(len(texts[0]))] * 2000


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/absent", 404, "not_found"),
        ("POST", "/v1/absent", 404, "not_found"),
        ("GET", "/v1/embeddings", 405, "method_not_allowed"),
        ("PUT", "/v1/embeddings", 405, "method_not_allowed"),
    ],
)
async def test_wrong_paths_and_methods(
    method: str, path: str, status: int, code: str, http: aiohttp.ClientSession
) -> None:
    async with http.request(method, path) as response:
        answer = await response.json()

    assert (response.status, answer["error"]["code"]) == (status, code)
    assert ("Allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("name", ["%ff", "%ed%a0%80", "a%00b", "%2e%2e/x", "a%2Fb", "x" * 4000, "%e2%98%83"])
async def test_odd_names_of_models(name: str, api: Api) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(f"{api.url}/v1/models/{name}", encoded=True)) as response,
    ):
        answer = await response.json()

    assert (response.status, answer["error"]["code"]) == (404, "model_not_found")
    assert len(answer["error"]["message"]) < 1000


async def test_what_is_no_http(api: Api) -> None:
    for sent in (b"\x16\x03\x01 hello in TLS", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        async with raw(api) as (reader, writer):
            writer.write(sent + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()


async def test_nothing_of_this_was_a_surprise(api: Api, worker: Process) -> None:
    assert not [line for line in api.log if "Traceback" in line or "ERROR" in line]
    assert worker.process.poll() is None


NO_HTTP = {
    "no HTTP": f"{SECRET}\r\n\r\n",
    "a bad version": "GET / HTTP/9\r\n\r\n",
    "a bad method": "G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "another method": "FETCH / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad header": f"GET / HTTP/1.1\r\nHost: x\r\n{SECRET}\r\n\r\n",
    "a long path": f"GET /{'a' * 20_000} HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": f"GET / HTTP/1.1\r\nHost: x\r\nX-A: {'a' * 20_000}\r\n\r\n",
    "two lengths": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length that is none": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length and chunks": "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "an expectation": "GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nConnection: close\r\n\r\n",
    "no such protocol": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("case", NO_HTTP)
async def test_what_is_no_good_http_is_told_so_in_our_words(case: str, api: Api) -> None:
    async with raw(api) as (reader, writer):
        writer.write(NO_HTTP[case].encode())
        head, _, answer = (await asyncio.wait_for(reader.read(), 10)).decode().partition("\r\n\r\n")

    status = int(head.split()[1])
    error = json.loads(answer)["error"]
    kind = "server_error" if case == "another method" else "invalid_request_error"
    assert (status, error["type"]) == ({"an expectation": 417, "another method": 501}.get(case, 400), kind)
    assert "Content-Type: application/json" in head
    assert "Server: infinity-pool\r\n" in head + "\r\n"
    assert not {"aiohttp", "Python", SECRET} & set((head + answer).replace("/", " ").split())
    assert SECRET not in head + answer
    assert ("too long" in error["message"]) == ("long" in case)
