"""TLS, sockets, ports, proxies and pages of other sites: one replica that has all of it."""

import asyncio
import os
import re
import signal
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from infinity_pool.api.clients.http_client import HttpClient
from infinity_pool.api.clients.sync_client import SyncClient
from infinity_pool.api.network.listening import check
from infinity_pool.api.network.tls import PASSWORD_VARIABLE, client_context
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.errors import InvalidInput, Unavailable
from tests.api.conftest import WIDTH, Api, Process, until

APP = "https://app.example"
JSON = {"Content-Type": "application/json"}
FORM = {"model": "m", "input": "a text"}
BODY = b'{"model": "m", "input": "a text"}'


@dataclass
class Place:
    """A replica, and what its callers need."""

    url: str
    admin_url: str
    uds: str
    ca: str
    certificate: Path
    api: Api
    authority: trustme.CA


@pytest.fixture(scope="module")
def place(start_api: Callable[..., Api], worker: Process, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("network")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issue(authority, folder / "server.pem", "first.example")
    with socket.socket(socket.AF_UNIX) as dead:  # left over by one that was killed
        dead.bind(str(folder / "api.sock"))
    admin_port = free_port()
    options = {
        "--port": free_port(),
        "--tls-cert": folder / "server.pem",
        "--uds": folder / "api.sock",
        "--uds-mode": "600",
        "--admin-port": admin_port,
        "--cors-origin": APP,
        "--trusted-proxy": "127.0.0.1",
        "--proxy-root-path": "/pool/",
        "--max-body": 4_000_000,
    }
    api = start_api(*(str(part) for pair in options.items() for part in pair), "--log-level", "debug")
    admin = f"https://127.0.0.1:{admin_port}"
    uds = str(folder / "api.sock")
    return Place(api.url, admin, uds, str(folder / "ca.pem"), folder / "server.pem", api, authority)


@pytest.fixture
async def session(place: Place) -> AsyncIterator[aiohttp.ClientSession]:
    """A caller who trusts the authority."""
    connector = aiohttp.TCPConnector(ssl=client_context(place.ca))
    async with aiohttp.ClientSession(place.url, connector=connector) as session:
        yield session


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def issue(authority: trustme.CA, file: Path, name: str) -> None:
    """Write a certificate and its key into one file, at once."""
    made = authority.issue_cert("127.0.0.1", name)
    made.private_key_and_cert_chain_pem.write_to_path(file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


async def name_of(place: Place) -> str:
    """Give the name that a certificate of the server has beside its address."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(place.url.split(":")[-1]), ssl=client_context(place.ca))
    names = writer.get_extra_info("peercert")["subjectAltName"]
    writer.close()
    return next(str(value) for kind, value in names if kind == "DNS")


async def test_clients_ask_over_tls(place: Place) -> None:
    async with HttpClient(place.url, verify=place.ca) as client:
        await until(partial(_serves, client))
        assert (await client.embed("m", ["a text"])).shape == (1, WIDTH)
    async with HttpClient(place.url, verify=False) as client:
        assert await client.models()
    async with HttpClient(place.url) as client:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.models()


async def _serves(client: HttpClient) -> bool:
    return any(model.ready for model in await client.models())


def test_the_blocking_client_too(place: Place) -> None:
    with SyncClient(place.url, verify=place.ca) as client:
        assert client.models()


async def test_a_unix_socket(place: Place) -> None:
    assert stat.S_IMODE(os.stat(place.uds).st_mode) == 0o600
    async with HttpClient("http://localhost", uds=place.uds) as client:
        assert await client.models()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions(version: ssl.TLSVersion, place: Place) -> None:
    context = client_context(place.ca)
    context.minimum_version = context.maximum_version = version
    async with aiohttp.ClientSession() as session, session.get(f"{place.url}/health", ssl=context) as response:
        assert response.status == 200


async def test_old_versions_and_plain_http_are_refused_without_noise(place: Place) -> None:
    port = int(place.url.split(":")[-1])
    old = client_context(False)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port, ssl=old)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"200 OK" not in await reader.read()
    writer.close()
    assert not [line for line in place.api.log if "Traceback" in line or "ERROR" in line]


async def test_a_new_certificate_is_taken(place: Place) -> None:
    assert await name_of(place) == "first.example"
    issue(place.authority, place.certificate, "second.example")
    await until(partial(_is_named, place, "second.example"))

    place.certificate.write_text("no certificate")
    place.api.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(place.api.expect, "the certificate stays as it was")
    assert await name_of(place) == "second.example"

    issue(place.authority, place.certificate, "third.example")
    place.api.process.send_signal(signal.SIGHUP)
    await until(partial(_is_named, place, "third.example"))


async def _is_named(place: Place, name: str) -> bool:
    return await name_of(place) == name


@pytest.mark.parametrize(
    ("path", "public", "admin"),
    [
        ("/health", 200, 200),
        ("/v1/health", 200, 200),
        ("/ready", 404, 200),
        ("/metrics", 404, 200),
        ("/docs", 404, 200),
        ("/docs/start.js", 404, 200),
        ("/openapi.json", 404, 200),
        ("/", 404, 200),
        ("/v1/models", 200, 404),
        ("/absent", 404, 404),
    ],
)
async def test_the_admin_port(path: str, public: int, admin: int, place: Place, session: aiohttp.ClientSession) -> None:
    for base, status in ((place.url, public), (place.admin_url, admin)):
        async with session.get(f"{base}{path}") as response:
            assert response.status == status
            if status == 404:
                assert (await response.json())["error"]["code"] == "not_found"


async def test_the_admin_port_embeds_nothing(place: Place, session: aiohttp.ClientSession) -> None:
    async with session.post(f"{place.admin_url}/v1/embeddings", data=BODY, headers=JSON) as response:
        assert response.status == 404


async def test_the_admin_port_says_where_the_api_is(place: Place, session: aiohttp.ClientSession) -> None:
    assert await _servers(place, session) == f"{place.url}/pool"
    assert await _servers(place, session, **{"X-Forwarded-Prefix": "/other/"}) == f"{place.url}/other"


async def _servers(place: Place, session: aiohttp.ClientSession, **headers: str) -> str:
    async with session.get(f"{place.admin_url}/openapi.json", headers=headers) as response:
        return str((await response.json())["servers"][0]["url"])


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({}, "https://127.0.0.1:"),
        ({"X-Forwarded-Proto": "http", "X-Forwarded-Host": "pool.example"}, "http://pool.example:"),
        ({"X-Forwarded-Host": "evil.example, pool.example"}, "https://pool.example:"),
        ({"X-Forwarded-Host": "pool.example", "X-Forwarded-For": "8.8.8.8, 127.0.0.1"}, "https://pool.example:"),
        ({"X-Forwarded-Host": "a.example, b.example", "X-Forwarded-For": "8.8.8.8, 127.0.0.1"}, "https://a.example:"),
        ({"X-Forwarded-Host": "a b<script>", "X-Forwarded-Proto": "gopher"}, "https://127.0.0.1:"),
        ({"Forwarded": 'for=8.8.8.8;proto=http;host="pool.example:8443"'}, "http://pool.example:"),
        ({"Forwarded": "for=8.8.8.8;host=evil.example", "X-Forwarded-Proto": "http"}, "http://127.0.0.1:"),
    ],
)
async def test_what_a_trusted_proxy_says(
    headers: dict[str, str], shown: str, place: Place, session: aiohttp.ClientSession
) -> None:
    assert (await _servers(place, session, **headers)).startswith(shown)


async def test_the_callers_address_is_in_the_debug_log_alone(place: Place, session: aiohttp.ClientSession) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7, 198.51.100.9", "X-Request-Id": "whose-is-it"}
    async with session.get("/health", headers=headers) as response:
        assert response.status == 200
    line = await asyncio.to_thread(place.api.expect, "whose-is-it")
    assert "198.51.100.9" in line
    assert "DEBUG" in line


async def test_others_are_not_believed(place: Place) -> None:
    """Whoever comes by the Unix socket is not among those who are trusted."""
    connector = aiohttp.UnixConnector(place.uds)
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Request-Id": "by-the-socket"}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://h/health", headers=headers) as response,
    ):
        assert response.status == 200
    assert "203.0.113.7" not in await asyncio.to_thread(place.api.expect, "by-the-socket")


async def test_a_page_of_an_allowed_site(session: aiohttp.ClientSession) -> None:
    asked = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    async with session.options("/v1/embeddings", headers={**asked, "Access-Control-Request-Headers": "a, b"}) as told:
        assert told.status == 204
        assert told.headers["Access-Control-Allow-Origin"] == APP
        assert told.headers["Access-Control-Allow-Headers"] == "a, b"
        assert "POST" in told.headers["Access-Control-Allow-Methods"]
        assert told.headers["Vary"] == "Origin"
    async with session.post("/v1/embeddings", data=BODY, headers={**JSON, "Origin": APP}) as answer:
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == APP
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        assert {"X-Request-Id", "X-Infinity-Truncated", "x-ratelimit-remaining-tokens"} <= set(
            answer.headers["Access-Control-Expose-Headers"].split(", ")
        )
    async with session.post("/v1/embeddings", data=b"", headers={**JSON, "Origin": APP}) as answer:
        assert answer.status == 400
        assert answer.headers["Access-Control-Allow-Origin"] == APP
    assert await _form(session, {"Origin": APP, "Sec-Fetch-Site": "cross-site"}) == 200


async def test_pages_of_other_sites(session: aiohttp.ClientSession) -> None:
    other = {"Origin": "https://other.example"}
    async with session.options("/v1/embeddings", headers={**other, "Access-Control-Request-Method": "POST"}) as told:
        assert told.status == 405
        assert not _cors_headers(told)
    async with session.post("/v1/embeddings", data=BODY, headers={**JSON, **other}) as answer:
        assert not _cors_headers(answer)
        assert answer.headers["Vary"] == "Origin"
    assert await _form(session, other) == 403


async def test_any_site(start_api: Callable[..., Api], worker: Process) -> None:
    api = start_api("--cors-origin", "*", "--api-key", "sesame")
    await _until_ready_with_key(api.url)
    async with aiohttp.ClientSession(api.url) as session:
        asked = {"Origin": APP, "Access-Control-Request-Method": "POST"}
        async with session.options("/v1/embeddings", headers=asked) as told:
            assert (told.status, told.headers["Access-Control-Allow-Origin"]) == (204, "*")
            assert "Access-Control-Allow-Credentials" not in told.headers
        async with session.get("/v1/models", headers={"Origin": APP}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, "*")
        assert await _form(session, {"Origin": APP, "Authorization": "Bearer sesame"}) == 200
    api.stop()


async def _until_ready_with_key(url: str) -> None:
    async with aiohttp.ClientSession(url) as session:

        async def ready() -> bool:
            async with session.get("/ready", params={"model": "m"}) as response:
                return response.status == 200

        await until(ready)


async def _form(session: aiohttp.ClientSession, headers: dict[str, str]) -> int:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in FORM.items():
        form.add_field(name, value)
    async with session.post("/v1/embeddings", data=form, headers=headers) as response:
        return response.status


def _cors_headers(response: aiohttp.ClientResponse) -> list[str]:
    return [name for name in response.headers if re.match("access-control", name, re.IGNORECASE)]


def _settings(folder: Path, **options: Any) -> ApiSettings:
    here = {name: value.replace("HERE", str(folder)) for name, value in options.items() if isinstance(value, str)}
    return ApiSettings(**{**options, **here})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_cert": "HERE/absent.pem"}, "absent.pem cannot be used for TLS: No such file"),
        ({"tls_cert": "HERE/text.pem"}, "text.pem cannot be used for TLS"),
        ({"tls_cert": "HERE/first.pem", "tls_key": "HERE/second.pem"}, "the key is not the certificate's"),
        (
            {"tls_cert": "HERE/first.pem", "tls_key": "HERE/locked.pem"},
            "locked.pem cannot be used for TLS: no PEM of its kind, or a key whose password",
        ),
        ({"tls_key": "HERE/first.pem"}, "--tls-key needs --tls-cert"),
        ({"tcp": False}, "--no-tcp leaves nothing to listen on"),
        ({"uds": "HERE/text.pem"}, "is there and is no socket"),
        ({"uds": "HERE/alive.sock"}, "another process does"),
        ({"uds": "HERE/new.sock", "uds_mode": "rwx"}, "--uds-mode rwx"),
        ({"uds": "HERE/new.sock", "uds_mode": "1777"}, "--uds-mode 1777"),
        ({"admin_port": 7997}, "--admin-port must differ"),
        ({"trusted_proxy": ("10.0.0.0/8", "proxy.example")}, "'proxy.example' is no address or CIDR"),
        ({"proxy_root_path": "/a b"}, "'/a b' is no path"),
        ({"cors_origin": ("https://app.example/", "app.example")}, "'app.example' is no origin"),
        ({"cors_origin": ("https://app.example/pages",)}, "'https://app.example/pages' is no origin"),
    ],
)
def test_what_will_never_do_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _files(tmp_path)
    monkeypatch.setenv(PASSWORD_VARIABLE, "wrong")
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(tmp_path / "alive.sock"))
        alive.listen()
        with pytest.raises(InvalidInput, match=re.escape(words)):
            check(_settings(tmp_path, **options))


def test_a_keys_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _files(tmp_path)
    monkeypatch.setenv(PASSWORD_VARIABLE, "hush")
    assert check(_settings(tmp_path, tls_cert="HERE/first.pem", tls_key="HERE/locked.pem"))


def _files(folder: Path) -> None:
    authority = trustme.CA()
    for name in ("first", "second"):
        issue(authority, folder / f"{name}.pem", "h.example")
    key = serialization.load_pem_private_key((folder / "first.pem").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"hush")
    )
    (folder / "locked.pem").write_bytes(locked)
    (folder / "text.pem").write_text("no certificate")


def test_the_socket_goes_with_its_process(place: Place) -> None:
    assert place.api.stop() == 0
    assert not os.path.exists(place.uds)
