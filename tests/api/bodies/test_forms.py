"""Forms, as browsers and curl send them: read, or refused in words, and never for a page of another site."""

from io import BytesIO
from typing import Any

import aiohttp
import pytest
from aiohttp import FormData

from infinity_pool.api.bodies.forms import fields_of
from infinity_pool.broker.errors import InvalidInput
from tests.api.conftest import WIDTH, Api

KIND = "multipart/form-data; boundary=xx"
FILE = b"\x00\r\n--x\r\n\xff"  # almost a boundary


def part(name: str, content: bytes, more: str = "", end: bytes = b"") -> bytes:
    return f'--xx\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n" + end


async def test_fields_and_files_in_order() -> None:
    data = (
        b"passed over\r\n"
        + part("model", "größe".encode())
        + part("input", FILE, '; filename="a b.png"\r\nContent-Type: image/png')
        + part("input", b"https://a.example/b.png")
        + part("file", b"", "; filename*=UTF-8''%e2%82%ac.wav")
        + b"--xx--\r\nand this"
    )
    assert await fields_of(data, KIND, "input") == {
        "model": "größe",
        "input": ["data:;base64,AA0KLS14DQr/", "https://a.example/b.png", "data:;base64,"],
    }
    quoted = data.replace(b"--xx", b"--a b?")
    assert await fields_of(quoted, 'multipart/form-data; boundary="a b?"', "input") == await fields_of(
        data, KIND, "input"
    )


END = b"--xx--"
BAD: dict[str, tuple[bytes, str, str]] = {
    "no boundary": (END, "multipart/form-data", "no boundary"),
    "a long boundary": (END, f"multipart/form-data; boundary={'x' * 71}", "no boundary"),
    "nothing": (b"", KIND, "cut off"),
    "no end": (part("model", b"m"), KIND, "cut off"),
    "half a boundary": (part("model", b"m") + b"--x", KIND, "cut off"),
    "no head": (b"--xx\r\nmodel" + b"\r\n" + END, KIND, "without an end of its headers"),
    "a long head": (part("model", b"m", "; x=" + "y" * 5000) + END, KIND, "without an end of its headers"),
    "no name": (b"--xx\r\nContent-Disposition: form-data\r\n\r\nm\r\n" + END, KIND, "without a name"),
    "no disposition": (b"--xx\r\nContent-Type: image/png\r\n\r\nm\r\n" + END, KIND, "without a name"),
    "twice": (part("model", b"m") * 2 + END, KIND, "model is given twice"),
    "bytes as text": (part("model", b"\xff") + END, KIND, "model is no text in UTF-8"),
    "a file elsewhere": (part("model", b"m", "; filename=m") + END, KIND, "model is no field for files; input is"),
    "many parts": (part("input", b"m") * 5000 + END, KIND, "more than 4096 parts"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_form(case: str) -> None:
    data, kind, words = BAD[case]
    with pytest.raises(InvalidInput, match=words):
        await fields_of(data, kind, "input")


async def post(api: Api, path: str = "/v1/embeddings", headers: Any = None, **fields: Any) -> tuple[int, Any]:
    form = FormData(fields, default_to_multipart=True)
    async with aiohttp.ClientSession(api.url) as session, session.post(path, data=form, headers=headers) as response:
        return response.status, await response.json()


async def test_texts_and_options(api: Api) -> None:
    status, answer = await post(api, model="m", input="a text", dimensions="5", encoding_format="float")
    assert (status, len(answer["data"][0]["embedding"])) == (200, 5)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"dimensions": "five"}, "dimensions", "valid integer"),
        ({"normalize": "perhaps"}, "normalize", "valid boolean"),
        ({"modality": "video"}, "modality", "'text', 'image' or 'audio'"),
        ({"file": BytesIO(b"a file")}, "modality", "say which modality"),
    ],
)
async def test_400(fields: dict[str, Any], param: str, words: str, api: Api) -> None:
    status, answer = await post(api, model="m", input="a text", **fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert words in answer["error"]["message"]


async def test_a_form_is_bounded_as_any_body_is(idle_api: Api) -> None:
    status, answer = await post(idle_api, model="m", file=BytesIO(bytes(4_000_001)))
    assert (status, answer["error"]["code"]) == (413, "request_entity_too_large")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "HERE"}, 200),
        ({"Origin": "HERE", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://proxied.example", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://other.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "HERE", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_pages_of_other_sites_have_no_forms_here(headers: dict[str, str], status: int, api: Api) -> None:
    headers = {name: value.replace("HERE", api.url) for name, value in headers.items()}
    found, answer = await post(api, headers=headers, model="m", input="a text")
    assert found == status
    if status == 200:
        assert len(answer["data"][0]["embedding"]) == WIDTH
    else:
        assert "other sites" in answer["error"]["message"]
