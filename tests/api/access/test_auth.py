import aiohttp
import pytest

from tests.api.conftest import KEY, Api


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "a key is needed"),
        ("", "a key is needed"),
        (KEY, "a key is needed"),
        (f"Basic {KEY}", "a key is needed"),
        ("Bearer", "the key is wrong"),
        ("Bearer wrong", "the key is wrong"),
        (f"Bearer {KEY}x", "the key is wrong"),
        ("Bearer \N{SNOWMAN}\N{GREEK SMALL LETTER ALPHA}", "the key is wrong"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/embeddings"), ("POST", "/embeddings"), ("GET", "/models")])
async def test_without_the_key(method: str, path: str, header: str | None, message: str, guarded: Api) -> None:
    headers = {} if header is None else {"Authorization": header}

    async with (
        aiohttp.ClientSession(guarded.url, headers=headers) as session,
        session.request(method, path, data=b"not even JSON") as response,
    ):
        answer = await response.json()

    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert answer["error"]["message"].startswith(message)
    assert (answer["error"]["type"], answer["error"]["code"]) == ("authentication_error", "unauthorized")


@pytest.mark.parametrize("header", [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER  {KEY} "])
async def test_with_the_key(header: str, guarded: Api) -> None:
    async with (
        aiohttp.ClientSession(guarded.url, headers={"Authorization": header}) as session,
        session.get("/v1/models") as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health", "/metrics"])
async def test_what_needs_no_key(path: str, guarded: Api) -> None:
    async with aiohttp.ClientSession(guarded.url) as session, session.get(path) as response:
        assert response.status == 200


async def test_probes_need_no_key(guarded: Api) -> None:
    async with aiohttp.ClientSession(guarded.url) as session, session.get("/ready") as response:
        assert response.status in (200, 503)


async def test_paths_that_are_not_there_need_the_key_too(guarded: Api) -> None:
    async with aiohttp.ClientSession(guarded.url) as session, session.get("/absent") as response:
        assert response.status == 401


def test_the_key_is_never_logged(guarded: Api) -> None:
    assert not [line for line in guarded.log if KEY in line]
