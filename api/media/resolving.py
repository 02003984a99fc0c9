"""From a host's name to the addresses that may be connected to."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from infinity_pool.api.media.addresses import Allowance

_THREADS = 32  # of its own: a name server that takes its time must not hold up what else the default ones do


class Resolver(AbstractResolver):
    """
    Resolves names, and gives of their addresses only those that are allowed.

    The connector connects to just these, so a name that means something else a moment later (DNS rebinding) gains
    nothing. Raises OSError if there are none.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._threads = ThreadPoolExecutor(_THREADS, "resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Give the allowed addresses of a host."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port, family)
        allowed = [each for each in found if self._allowance.permits(host, port, each["host"])]
        if not allowed:
            raise OSError("no address that may be connected to")
        return allowed

    async def close(self) -> None:
        """End the threads, once they are done."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    name = host.encode("ascii", "replace")  # as it is: Python's own IDNA fails at names that are too long
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=port,
            family=kind,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, protocol, _, address in socket.getaddrinfo(name, port, family, socket.SOCK_STREAM)
    ]
