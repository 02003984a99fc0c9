"""
Which hosts may be asked for files: those of the public internet, and those that the operator names.

What an address may be is decided of the address itself, after all names are resolved, so it does not matter how it was
written or who answers for a name.
"""

import ipaddress
import re
from collections.abc import Iterable

from infinity_pool.broker.errors import InvalidInput

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = (80, 443)
"""Where files are fetched from; the servers behind other ports were not made to be asked by strangers."""

_NAME = re.compile(
    r"(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)*[a-z_-][a-z0-9_-]{0,62}|(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)+xn--[a-z0-9-]+"
)

_UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out
_TO_IPV4 = ipaddress.ip_network("64:ff9b::/96")  # NAT64 (RFC 6052): leads to the IPv4 address at its end
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure's services for a machine, though the address is a public one
            "192.0.0.0/24",  # protocol assignments; Oracle's cloud tells a machine's secrets there
            "192.88.99.0/24",  # relays of 6to4
            "2001::/23",  # protocol assignments, Teredo among them, which leads to IPv4
            "2002::/16",  # 6to4, which leads to IPv4
            "3ffe::/16",  # the 6bone of old
            "3fff::/20",  # documentation
        ),
    )
)


class Allowance:
    """
    Who may be asked; `named` are the operator's: hosts, `*.suffix` for all below one, addresses and networks (CIDR).

    Raises InvalidInput for what is none of these.
    """

    def __init__(self, named: Iterable[str]) -> None:
        self._hosts: set[str] = set()
        self._suffixes: list[str] = []
        self._networks: list[_Network] = []
        for each in named:
            self._add(each.strip().lower().rstrip("."))

    def permits(self, host: str, port: int, address: str) -> bool:
        """Whether a connection to `address`, which is what `host` was resolved to, may be opened."""
        if self._names(host.lower().rstrip(".")):
            return True
        reached = _reached(ipaddress.ip_address(address))
        if any(reached in network for network in self._networks):
            return True
        return port in PORTS and is_public(reached)

    def _add(self, each: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(each))
        except ValueError as error:
            if not _NAME.fullmatch(each):
                message = f"--media-allow: {each!r} is no host, *.suffix, address or network: {error}"
                raise InvalidInput(message, param="media_allow") from None
            if each.startswith("*."):
                self._suffixes.append(each[1:])
            else:
                self._hosts.add(each)

    def _names(self, host: str) -> bool:
        return host in self._hosts or any(host.endswith(suffix) for suffix in self._suffixes)


def is_public(address: _Address) -> bool:
    """Whether an address is one of the public internet, of a single host, and nothing else by another name."""
    if any(address in network for network in _NOT_PUBLIC):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return address in _UNICAST and address.is_global
    return address.is_global and not address.is_multicast


def literal(host: str) -> str | None:
    """
    Give the address that a URL has in place of a host's name, None if it has a name.

    Raises InvalidInput for numbers that only an old C library takes for an address, such as 127.1.
    """
    if ":" not in host and not host.replace(".", "").isdigit():
        return None
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        raise InvalidInput("cannot be fetched: its host is no address, and no name") from None


def _reached(address: _Address) -> _Address:
    """Give the IPv4 address that a connection to an IPv6 address ends at, where it does."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if address in _TO_IPV4:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address
