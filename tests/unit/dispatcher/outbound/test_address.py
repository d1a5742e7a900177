"""Which addresses may be connected to. The vectors are the published deny lists."""

import socket
from ipaddress import IPv4Address, ip_network

import pytest

from holdfast.dispatcher.outbound.address import DENIED, is_allowed, refusal

PUBLIC = (
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255"),
    *("100.128.0.1", "192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255"),
    *("2606:4700:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "::ffff:8.8.8.8"),
)

DISGUISED = (
    *("0.0.0.1", "127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "100.64.0.1", "224.0.0.1", "239.255.255.255", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::127.0.0.1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "fc00::1", "fd12:3456::1", "fe80::1%eth0"),
    *("ff02::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1", "2001::1"),
)

LINK_LOCAL = ("169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0")

METADATA_V4 = (
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
)
METADATA_V6 = (
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
)
METADATA = (*LINK_LOCAL, *METADATA_V4, *METADATA_V6)

EVERYTHING = (ip_network("0.0.0.0/0"), ip_network("::/0"))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_needs_no_permission(address: str) -> None:
    assert refusal(address, ()) is None


@pytest.mark.parametrize("network", DENIED, ids=str)
def test_first_and_last_address_of_each_denied_network_is_refused(network: str) -> None:
    denied = ip_network(network)
    assert refusal(str(denied[0]), ()) is not None
    assert refusal(str(denied[-1]), ()) is not None


@pytest.mark.parametrize("address", DISGUISED + METADATA)
def test_private_address_is_refused_in_every_disguise(address: str) -> None:
    assert refusal(address, ()) is not None


@pytest.mark.parametrize(
    ("address", "network"),
    [("127.0.0.1", "127.0.0.0/8"), ("::ffff:10.1.2.3", "10.0.0.0/8"), ("fd12::1", "fd12::/16")],
)
def test_operator_may_allow_a_private_network(address: str, network: str) -> None:
    assert refusal(address, (ip_network(network),)) is None
    assert is_allowed(address, (ip_network(network),))
    assert not is_allowed(address, ())


def _embeddings(inner: str) -> dict[str, str]:
    """Every form in which an IPv6 address can carry this IPv4 address, by where it is defined."""
    high, low = int(IPv4Address(inner)) >> 16, int(IPv4Address(inner)) & 0xFFFF
    a, b, c, d = IPv4Address(inner).packed
    flipped = f"{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"
    return {
        "compatible, RFC 4291": f"::{inner}",
        "mapped, RFC 4291": f"::ffff:{inner}",
        "translated, RFC 2765": f"::ffff:0:{inner}",
        "NAT64, RFC 6052": f"64:ff9b::{inner}",
        "local NAT64 /48, RFC 8215": f"64:ff9b:1:{high:x}:{c:x}:{d:02x}00::",
        "local NAT64 /56, RFC 8215": f"64:ff9b:1:ab{a:02x}:{b:x}:{c:02x}{d:02x}::",
        "local NAT64 /64, RFC 8215": f"64:ff9b:1:abcd:{a:x}:{b:02x}{c:02x}:{d:02x}00::",
        "local NAT64 /96, RFC 8215": f"64:ff9b:1:abcd:ef01:2345:{inner}",
        "6to4, RFC 3056": f"2002:{high:x}:{low:x}::1",
        "Teredo client, RFC 4380": f"2001:0:808:808:0:ffff:{flipped}",
        "Teredo server, RFC 4380": f"2001:0:{high:x}:{low:x}:0:ffff:f7f7:f7f7",
        "ISATAP, RFC 5214": f"2606:4700::5efe:{inner}",
        "ISATAP of a public address, RFC 5214": f"2606:4700::200:5efe:{inner}",
    }


NETWORK_SPECIFIC = {
    "/32": "2606:4700:a9fe:a9fe::",
    "/40": "2606:4700:12a9:fea9:fe::",
    "/48": "2606:4700:1234:a9fe:a9:fe00::",
    "/56": "2606:4700:1234:12a9:fe:a9fe::",
    "/64": "2606:4700:1234:1234:a9:fea9:fe00::",
    "/96": "2606:4700:1234:1234:1234:1234:a9fe:a9fe",
}
"""169.254.169.254 behind a translator's own prefix (RFC 6052, section 2.2)."""


@pytest.mark.parametrize("address", METADATA)
def test_metadata_and_link_local_are_refused_whatever_is_allowed(address: str) -> None:
    assert refusal(address, EVERYTHING) is not None
    assert refusal(address, ()) is not None


@pytest.mark.parametrize("form", _embeddings("8.8.8.8"))
@pytest.mark.parametrize("inner", METADATA_V4)
def test_metadata_is_refused_whatever_is_allowed_and_carries_it(inner: str, form: str) -> None:
    assert refusal(_embeddings(inner)[form], EVERYTHING) is not None


@pytest.mark.parametrize("address", NETWORK_SPECIFIC.values(), ids=NETWORK_SPECIFIC.keys())
def test_metadata_is_refused_behind_any_translator_prefix(address: str) -> None:
    assert refusal(address, ()) is not None
    assert refusal(address, EVERYTHING) is not None


@pytest.mark.parametrize("form", _embeddings("8.8.8.8"))
def test_private_address_needs_permission_whatever_carries_it(form: str) -> None:
    carrier, inner = _embeddings("10.1.2.3")[form], ip_network("10.0.0.0/8")
    assert refusal(carrier, ()) is not None
    if "mapped" not in form:  # the system itself connects to the one inside
        assert refusal(carrier, (ip_network("::/0"),)) is not None
    assert refusal(carrier, (ip_network("::/0"), inner)) is None
    assert is_allowed(carrier, EVERYTHING)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "::ffff:0:808:808",
            "1000::1",
            "1fff:ffff::1",
            "4000::1",
            "5f00::1",
            "6000::1",
            "8000::1",
        ),
        *("c000::1", "e000::1", "f000::1", "fbff::1", "100::1", "200::1", "400::1"),
    ],
)
def test_ipv6_is_allowed_only_in_2000_3(address: str) -> None:
    assert refusal(address, ()) is not None
    assert refusal(address, (ip_network(f"{address}/128"),)) is None


@pytest.mark.parametrize("address", ["2000::1", "2606:4700::1111", "3ffe::1", "3ff0::1"])
def test_ipv6_in_2000_3_needs_no_permission(address: str) -> None:
    assert refusal(address, ()) is None


@pytest.mark.parametrize(
    ("address", "network"),
    [
        *(("::1", "::1/128"), ("::", "::/128"), ("127.0.0.1", "127.0.0.0/8")),
        *(("10.1.2.3", "10.0.0.0/8"), ("fd12:3456::1", "fd00::/8"), ("fd00:ec2::1", "fd00::/8")),
        *(("100.100.100.201", "100.64.0.0/10"), ("::ffff:10.1.2.3", "10.0.0.0/8")),
        *(("64:ff9b::808:808", "64:ff9b::/96"), ("64:ff9b:1::808:808", "64:ff9b:1::/48")),
    ],
)
def test_what_an_operator_allows_is_allowed_but_metadata(address: str, network: str) -> None:
    assert refusal(address, ()) is not None
    assert refusal(address, (ip_network(network),)) is None


@pytest.mark.parametrize("form", _embeddings("8.8.8.8"))
def test_allowing_what_carries_a_public_address_is_enough(form: str) -> None:
    assert refusal(_embeddings("8.8.8.8")[form], (ip_network("::/0"),)) is None


def test_allowing_a_tunnel_does_not_allow_what_is_inside() -> None:
    assert refusal("64:ff9b::10.0.0.1", (ip_network("64:ff9b::/96"),)) is not None
    assert refusal("64:ff9b::8.8.8.8", (ip_network("64:ff9b::/96"),)) is None


def test_zone_changes_nothing() -> None:
    loopback = (ip_network("::1/128"),)
    assert refusal("::1%lo", loopback) is None
    assert is_allowed("::1%lo", loopback)
    assert refusal("::1%lo", ()) is not None
    assert not is_allowed("::1%lo", ())


# The deny list that webhook senders publish, by an address from within each network.
PUBLISHED = (
    *("0.1.2.3", "10.1.2.3", "100.64.1.2", "127.1.2.3", "169.254.1.2", "172.16.1.2", "192.0.0.1"),
    *("192.0.2.1", "192.88.99.1", "192.168.1.2", "198.18.1.2", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::8.8.8.8", "64:ff9b::8.8.8.8"),
    *("64:ff9b:1::1", "100::1", "2001:db8::1", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1"),
    *("fd00:ec2::254", "fe80::1", "ff00::1", "2001:0:808:808:0:ffff:f7f7:f7f7"),
)


@pytest.mark.parametrize("address", PUBLISHED)
def test_published_deny_list_is_refused(address: str) -> None:
    assert refusal(address, ()) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0x7f.1", "127.0.1", "0", "0x0"),
        *("::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%lo"),
        *("[::ffff:a9fe:a9fe]", "2852039166", "0xa9fea9fe"),
    ],
)
def test_private_address_is_refused_however_it_is_written(host: str) -> None:
    """What is judged is what the system makes of the text, since that is what it connects to."""
    addresses = socket.getaddrinfo(host.strip("[]"), 443, type=socket.SOCK_STREAM)
    assert addresses
    assert all(refusal(str(info[4][0]), ()) is not None for info in addresses)
