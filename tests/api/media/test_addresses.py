"""Who may be asked for a file, by address, however it is written."""

import pytest

from infinity_pool.api.media.addresses import Allowance, literal
from infinity_pool.broker.errors import InvalidInput

PUBLIC = ["93.184.215.14", "1.1.1.1", "172.32.0.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
PRIVATE = """
    127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1
    100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.7 192.88.99.1 224.0.0.1 239.255.255.255
    240.0.0.1 255.255.255.255 168.63.129.16
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe
    64:ff9b:1::7f00:1 2002:7f00:1:: 2002:808:808:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 3fff::1 3ffe::1
    fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 100::1 5f00::1
"""


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert Allowance([]).permits("cdn.example", 443, address)
    assert Allowance([]).permits("cdn.example", 80, address)
    assert not Allowance([]).permits("cdn.example", 25, address)


@pytest.mark.parametrize("address", PRIVATE.split())
def test_private(address: str) -> None:
    assert not Allowance(["other.example", "*.else.example"]).permits("cdn.example", 443, address)


@pytest.mark.parametrize(
    ("named", "host", "address", "permitted"),
    [
        ("files.internal", "files.internal", "10.0.0.1", True),
        ("Files.Internal.", "FILES.internal.", "10.0.0.1", True),
        ("files.internal", "xfiles.internal", "10.0.0.1", False),
        ("files.internal", "a.files.internal", "10.0.0.1", False),
        ("*.internal", "a.b.internal", "127.0.0.1", True),
        ("*.internal", "internal", "127.0.0.1", False),
        ("*.internal", "notinternal", "127.0.0.1", False),
        ("minio", "minio", "172.18.0.3", True),
        ("10.0.0.0/8", "any.example", "10.255.0.1", True),
        ("10.0.0.0/8", "any.example", "11.0.0.1", False),
        ("10.0.0.0/8", "any.example", "::ffff:10.1.1.1", True),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1/32", "any.example", "127.0.0.2", False),
        ("::1", "any.example", "::1", True),
        ("fd00::/8", "any.example", "fd12::1", True),
    ],
)
def test_what_an_operator_names_may_be_asked_at_any_port(named: str, host: str, address: str, permitted: bool) -> None:
    assert Allowance(["unused.example", named]).permits(host, 8123, address) is permitted


@pytest.mark.parametrize(
    "named",
    ["", "*", "*.", "http://files.internal", "files.internal:80", "a b", "10.0.0.1/8", "10.0.0", "a.*.b", "2130706433"],
)
def test_what_names_nobody(named: str) -> None:
    with pytest.raises(InvalidInput, match="--media-allow"):
        Allowance([named])


def test_literal_addresses() -> None:
    assert [literal(host) for host in ("127.0.0.1", "::1", "fe80::1%eth0")] == ["127.0.0.1", "::1", "fe80::1%eth0"]
    assert [literal(host) for host in ("a.example", "0x7f.1", "1.2.3.example")] == [None] * 3
    for host in ("127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "1.2.3.4.5", "1::2::3"):
        with pytest.raises(InvalidInput, match="no address"):
            literal(host)
