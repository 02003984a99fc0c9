"""Fetching, from a real server that is allowed, and from all who are not, which must never hear of it."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from infinity_pool.api.media.data_uri import MAX_ITEM_BYTES
from infinity_pool.api.media.fetch import Fetcher, Room
from infinity_pool.api.media.files import files_of
from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import DeadlineExceeded, InvalidInput
from tests.api.conftest import until

ALLOWED = "127.0.0.1/32"
BOMB = gzip.compress(bytes(2**24))
PNG = "data:image/png;base64,aGVsbG8="


class Remote:
    """A host that behaves as the path says, and remembers who asked for what."""

    def __init__(self) -> None:
        self.heard: list[web.BaseRequest] = []
        self.at_once = self.most_at_once = 0
        self.go_on = asyncio.Event()

    async def __aenter__(self) -> "Remote":
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.go_on.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.heard.append(request)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            answer = await getattr(self, request.path.strip("/").split("/")[0])(request)
            assert isinstance(answer, web.StreamResponse)
            return answer
        finally:
            self.at_once -= 1

    async def file(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=request.path.encode(), headers={"Set-Cookie": "who=you"})

    async def empty(self, request: web.BaseRequest) -> web.Response:
        return web.Response()

    async def status(self, request: web.BaseRequest) -> web.Response:
        return web.Response(status=int(request.path.split("/")[2]), text="what is inside")

    async def to(self, request: web.BaseRequest) -> web.Response:
        status = int(request.query.get("status", 302))
        return web.Response(status=status, headers={"Location": request.query["url"]})

    async def nowhere(self, request: web.BaseRequest) -> web.Response:
        return web.Response(status=302)

    async def loop(self, request: web.BaseRequest) -> web.Response:
        return web.Response(status=307, headers={"Location": "/loop"})

    async def packed(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=BOMB, headers={"Content-Encoding": "gzip"})

    async def slow(self, request: web.BaseRequest) -> web.Response:
        await self.go_on.wait()
        return web.Response(body=b"slow")

    async def large(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=bytes(int(request.path.split("/")[2])))

    async def endless(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(2**18))

    async def dripping(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.01)

    async def liar(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"less")
        assert request.transport
        request.transport.close()
        return response

    async def boast(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(10**12)})
        await response.prepare(request)
        await self.go_on.wait()
        return response

    async def noise(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport
        request.transport.write(b"220 mail.internal ESMTP what is inside\r\n")
        request.transport.close()
        return web.Response()


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    async with Remote() as remote:
        yield remote


@asynccontextmanager
async def fetching(*allow: str, **settings: Any) -> AsyncIterator[Any]:
    async with Fetcher(HttpSettings(media_allow=allow, **settings)) as fetcher:

        async def files(*values: str, room: int = 2**26, timeout: float = 30.0) -> list[bytes]:
            return await files_of(values, fetcher, room, timeout)

        yield files


async def test_files_come_in_order_and_each_url_is_fetched_once(remote: Remote) -> None:
    one, other = f"{remote.url}/file/1", f"{remote.url}/file/2"
    async with fetching(ALLOWED) as files:
        assert await files(one, PNG, other, one, one + "#part") == [b"/file/1", b"hello", b"/file/2"] + [b"/file/1"] * 2
        await files(f"{remote.url}/file/3")
    assert sorted(request.path for request in remote.heard) == ["/file/1", "/file/2", "/file/3"]
    for request in remote.heard:
        assert not {"Cookie", "Authorization", "Referer"} & set(request.headers)
        assert request.headers["Accept-Encoding"] == "identity"


async def test_proxies_and_passwords_of_the_environment_are_not_used(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with fetching(ALLOWED) as files:
        assert await files(f"{remote.url}/file") == [b"/file"]
    assert "Authorization" not in remote.heard[0].headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(status: int, remote: Remote) -> None:
    async with fetching(ALLOWED) as files:
        assert await files(f"{remote.url}/to/?status={status}&url=/to/?url={remote.url}/file/9") == [b"/file/9"]


REFUSED = """
    http://127.0.0.1:PORT/file http://127.1:PORT/file http://2130706433:PORT/file http://0x7f000001:PORT/file
    http://0x7f.1:PORT/file http://0177.0.0.1:PORT/file http://017700000001:PORT/file http://localhost:PORT/file
    http://127.0.0.1.:PORT/file http://localhost.:PORT/file http://[::1]:PORT/file http://[::ffff:127.0.0.1]:PORT/file
    http://[::ffff:7f00:1%25lo]:PORT/file http://[64:ff9b::7f00:1]:PORT/file http://0:PORT/file http://0.0.0.0:PORT/file
    http://①②⑦.0.0.1:PORT/file http://127。0。0。1:PORT/file http://%31%32%37.0.0.1:PORT/file http://[::]:PORT/file
    http://169.254.169.254/latest/meta-data HTTP://127.0.0.1:PORT/file https://127.0.0.1:PORT/file http://10.0.0.1/
    http://me@127.0.0.1:PORT/file http://:secret@93.184.215.14/ http://@93.184.215.14/ http://93.184.215.14:6379/
    http://a.example\\@127.0.0.1:PORT/file http://a.example#@127.0.0.1:PORT/file http:///file http: http:file https://
    http://[::1 http://h:99999/ http://[fe80::1%251]:PORT/file
"""


@pytest.mark.parametrize("address", [*REFUSED.split(), "http://127.0.0.1:PORT/" + "a" * 9000])
async def test_who_may_not_be_asked_hears_nothing(
    address: str, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", numbers_and_localhost)
    async with fetching() as files:
        with pytest.raises(InvalidInput, match=r"fetched|is no valid URL|more than 8192") as caught:
            await files(PNG, address.replace("PORT", str(remote.port)))
        assert caught.value.item == 1
        assert str(remote.port) not in caught.value.message
    assert not remote.heard


_getaddrinfo = socket.getaddrinfo


def numbers_and_localhost(host: bytes, *more: Any) -> list[Any]:
    """Resolve what needs no name server, which a test has not."""
    if host.endswith(b".example") or b"%" in host:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return _getaddrinfo(host, *more)


REDIRECTED = [
    "http://localhost:PORT/file",
    "http://127.1:PORT/file",
    "http://[::1]:PORT/",
    "http://me@127.0.0.1:PORT/file",
]


@pytest.mark.parametrize("address", [*REDIRECTED, "//127.0.0.2:PORT/file", "file:///etc/passwd", "ftp://127.0.0.1/"])
async def test_redirects_are_checked_as_the_first_url_is(address: str, remote: Remote) -> None:
    async with fetching("start.example") as files, named({"start.example": ["127.0.0.1"]}):
        with pytest.raises(InvalidInput, match="cannot be fetched"):
            await files(f"http://start.example:{remote.port}/to/?url={address.replace('PORT', str(remote.port))}")
    assert [request.path for request in remote.heard] == ["/to/"]


@asynccontextmanager
async def named(hosts: dict[str, list[str]]) -> AsyncIterator[list[str]]:
    """Have names resolved as it is said here, each time by the next of the addresses; gives what was looked up."""
    asked: list[str] = []

    def look_up(host: bytes, port: int, family: Any, kind: Any) -> list[Any]:
        name = host.decode()
        asked.append(name)
        if name not in hosts:
            return _getaddrinfo(host, port, family, kind)
        address = hosts[name].pop(0) if len(hosts[name]) > 1 else hosts[name][0]
        return [(socket.AF_INET, kind, 6, "", (each, port)) for each in address.split()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        yield asked


async def test_what_was_checked_is_what_is_connected_to(remote: Remote) -> None:
    url = f"http://evil.example:{remote.port}/file"
    async with fetching("127.0.0.2") as files, named({"evil.example": ["127.0.0.2", "127.0.0.1"]}) as asked:
        with pytest.raises(InvalidInput, match="cannot be reached"):  # nobody is at the address that is allowed
            await files(url)
        assert asked == ["evil.example"]
    async with fetching("127.0.0.2") as files, named({"evil.example": ["127.0.0.1 10.0.0.1"]}):
        with pytest.raises(InvalidInput, match="unknown or not public"):
            await files(url)
    assert not remote.heard


async def test_of_several_addresses_only_allowed_ones_are_tried(remote: Remote) -> None:
    async with fetching(ALLOWED) as files, named({"both.example": ["127.0.0.2 127.0.0.1"]}):
        assert await files(f"http://both.example:{remote.port}/file") == [b"/file"]


async def test_hosts_that_are_not_there_and_hosts_that_are_not_for_strangers_look_the_same(remote: Remote) -> None:
    errors = set()
    async with fetching() as files, named({"inside.example": ["10.0.0.1"], "none.example": [""]}):
        for host in ("inside.example", "none.example", "a" * 70 + ".example", "127.0.0.1"):
            with pytest.raises(InvalidInput) as caught:
                await files(f"http://{host}/file")
            errors.add(caught.value.message)
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("empty", "is empty"),
        ("status/404", "status 404"),
        ("status/500", "status 500"),
        ("status/206", "status 206"),
        ("status/304", "status 304"),
        ("loop", "more than 5 times"),
        ("nowhere", "more than 5 times"),
        ("packed", "packed as 'gzip'"),
        ("endless", "send it smaller"),
        ("boast", "send it smaller"),
        (f"large/{MAX_ITEM_BYTES + 1}", "send it smaller"),
        ("liar", "broke off"),
        ("noise", "no valid HTTP"),
        ("dripping", "within 0.5 s"),
        ("slow", "within 0.5 s"),
    ],
)
async def test_what_is_no_file(path: str, words: str, remote: Remote) -> None:
    async with fetching(ALLOWED, media_timeout=0.5 if "0.5" in words else 30.0) as files:
        with pytest.raises(InvalidInput, match=words) as caught:
            await files(PNG, f"{remote.url}/{path}", f"{remote.url}/file")
        assert caught.value.item == 1
        assert "what is inside" not in caught.value.message


async def test_the_largest_file(remote: Remote) -> None:
    async with fetching(ALLOWED) as files:
        assert await files(f"{remote.url}/large/{MAX_ITEM_BYTES}") == [bytes(MAX_ITEM_BYTES)]


async def test_where_nobody_listens(remote: Remote) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with fetching(ALLOWED) as files:
            with pytest.raises(InvalidInput, match="cannot be reached"):
                await files(f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def test_a_server_without_tls(remote: Remote) -> None:
    async with fetching(ALLOWED) as files:
        with pytest.raises(InvalidInput, match=r"certificate|reached"):
            await files(remote.url.replace("http", "https"))


async def test_all_together_have_room_for_so_much(remote: Remote) -> None:
    one, other = f"{remote.url}/large/4000", f"{remote.url}/large/4001"
    async with fetching(ALLOWED) as files:
        assert len(await files(one, other, room=8001)) == 2
        for values in ((one, other), (one, one, one)):
            with pytest.raises(InvalidInput, match="8000 bytes together"):
                await files(*values, room=8000)


async def test_fetches_are_at_once_up_to_a_bound(remote: Remote) -> None:
    async with fetching(ALLOWED) as files:
        task = asyncio.create_task(files(*(f"{remote.url}/slow/{number}" for number in range(40))))
        await until(lambda: _is(remote.at_once, 16))
        remote.go_on.set()
        assert await task == [b"slow"] * 40
    assert remote.most_at_once == 16


async def _is(value: int, wanted: int) -> bool:
    return value == wanted


async def test_a_slow_host_holds_up_nobody_else(remote: Remote) -> None:
    async with Remote() as slow, fetching(ALLOWED) as files:
        tasks = [asyncio.create_task(files(*(f"{slow.url}/slow/{n}/{m}" for m in range(16)))) for n in range(4)]
        await until(lambda: _is(slow.at_once, 32))  # as many as one host gets
        assert await files(f"{remote.url}/file") == [b"/file"]
        slow.go_on.set()
        await asyncio.gather(*tasks)


async def test_who_goes_away_and_who_fails_leave_no_fetch_behind(remote: Remote) -> None:
    slow = [f"{remote.url}/slow/{number}" for number in range(5)]
    async with fetching(ALLOWED) as files:
        task = asyncio.create_task(files(*slow))
        await until(lambda: _is(remote.at_once, 5))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(InvalidInput, match="status 404") as caught:
            await files(*slow, f"{remote.url}/status/404")
        assert caught.value.item == 5
        with pytest.raises(DeadlineExceeded):
            await files(*slow, timeout=0.2)


async def test_urls_can_be_turned_off(remote: Remote) -> None:
    async with fetching(ALLOWED, media_urls=False) as files:
        with pytest.raises(InvalidInput, match="not fetched here; send the file itself") as caught:
            await files(PNG, f"{remote.url}/file")
        assert caught.value.item == 1
        assert await files(PNG) == [b"hello"]
    assert not remote.heard


def test_room() -> None:
    room = Room(10)
    room.take(10)
    with pytest.raises(InvalidInput):
        room.take(1)
