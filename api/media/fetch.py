"""
Fetches files from http and https URLs, as strangers name them.

Nothing of ours goes along: no cookies, no credentials, no proxy of the environment. What cannot be fetched is told in
words that say nothing about who answered, and how, behind an address that is not a public one.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Self

import aiohttp
from yarl import URL

from infinity_pool.api.media.addresses import Allowance, literal
from infinity_pool.api.media.data_uri import check_size
from infinity_pool.api.media.resolving import Resolver
from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import DeadlineExceeded, InvalidInput

_AT_ONCE = 16  # fetches of one request
_AT_ONE_HOST = 32  # of all requests, so that a slow host leaves room for others
_CONNECTIONS = 128
_REDIRECTS = 5
_REDIRECTED = (301, 302, 303, 307, 308)
_LONGEST = 8192  # characters of a URL
_HEADERS = {"User-Agent": "infinity-pool", "Accept": "image/*, audio/*, */*;q=0.5", "Accept-Encoding": "identity"}
_NOT_ALLOWED = "cannot be fetched: its host is unknown or not public, or its port is not 80 or 443"


class Room:
    """Bytes that the files of one request may still have, each as often as it is asked for."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size

    def take(self, size: int) -> None:
        """Raises InvalidInput if there is no more room."""
        self._left -= size
        if self._left < 0:
            raise InvalidInput(f"is too much: all files of a request may have {self._size} bytes together")


class Fetcher:
    """The fetches of one replica; an async context manager. Raises InvalidInput for a bad `media_allow`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._allowance = Allowance(settings.media_allow)
        self._enabled = settings.media_urls
        self._timeout = settings.media_timeout

    async def __aenter__(self) -> Self:
        self._resolver = Resolver(self._allowance)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, limit_per_host=_AT_ONE_HOST, resolver=self._resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(),  # none of its own: ours is for all of a fetch
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()
        await self._resolver.close()

    async def fetch(self, places: Mapping[str, Sequence[int]], room: Room, timeout: float) -> list[bytes]:
        """
        Fetch files, in order; `places` has the items of each URL, which is fetched once.

        All are fetched at once, or as many as one request may, and where one fails the others end. Raises
        InvalidInput, naming the first item of the URL, and DeadlineExceeded after `timeout` seconds.
        """
        turns = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(url, items, room, turns)) for url, items in places.items()]
        except TimeoutError:
            raise DeadlineExceeded("the files to be fetched did not arrive in time") from None
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, address: str, items: Sequence[int], room: Room, turns: asyncio.Semaphore) -> bytes:
        try:
            if not self._enabled:
                raise InvalidInput("URLs are not fetched here; send the file itself, as data:image/png;base64,…")
            async with turns:
                return await self._in_time(_parsed(address), len(items), room)
        except InvalidInput as error:
            raise InvalidInput(error.message, item=items[0]) from error

    async def _in_time(self, url: URL, times: int, room: Room) -> bytes:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url, times, room)
        except TimeoutError:
            raise InvalidInput(f"did not arrive within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise InvalidInput(_explained(error)) from error

    async def _follow(self, url: URL, times: int, room: Room) -> bytes:
        """Ask, and ask where it sends us: each URL is checked as the first one was."""
        for _ in range(_REDIRECTS + 1):
            self._check(url)
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status not in _REDIRECTED:
                    return await _read(response, times, room)
                url = _parsed(response.headers.get("Location", ""), url)
        raise InvalidInput(f"cannot be fetched: it is redirected more than {_REDIRECTS} times")

    def _check(self, url: URL) -> None:
        """Refuse an address that is written out; names are resolved first, and then refused."""
        host, port = url.raw_host or "", url.port or 0
        address = literal(host)
        if address is not None and not self._allowance.permits(host, port, address):
            raise InvalidInput(_NOT_ALLOWED)


def _parsed(address: str, base: URL | None = None) -> URL:
    """Read a URL, or where one leads to; raises InvalidInput for what is none that is fetched."""
    if len(address) > _LONGEST:
        raise InvalidInput(f"is a URL of more than {_LONGEST} characters")
    try:
        url = URL(address) if base is None else base.join(URL(address))
    except ValueError:
        raise InvalidInput("is no valid URL" if base is None else "is redirected to no valid URL") from None
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise InvalidInput("cannot be fetched: it is no http or https URL with a host")
    if "@" in url.raw_authority or url.raw_user is not None:
        raise InvalidInput("cannot be fetched: its URL names a user, which is not sent along")
    return url


async def _read(response: aiohttp.ClientResponse, times: int, room: Room) -> bytes:
    """Take what comes, as long as there is room for it `times` times."""
    if response.status != 200:
        raise InvalidInput(f"cannot be fetched: its host answers with status {response.status}")
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise InvalidInput(f"cannot be fetched: it comes packed as {encoding[:20]!r}, which was not asked for")
    check_size(response.content_length or 0)
    data = bytearray()
    async for chunk in response.content.iter_any():
        room.take(len(chunk) * times)
        data += chunk
        check_size(len(data))
    if not data:
        raise InvalidInput("is empty")
    return bytes(data)


def _explained(error: Exception) -> str:
    """Say what went wrong; a name that does not exist and one that is not for strangers look the same."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _NOT_ALLOWED
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "cannot be fetched: its host has no valid certificate"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "cannot be fetched: its host cannot be reached"
    return "cannot be fetched: its host broke off, or its answer is no valid HTTP"
