"""Which addresses may be connected to. The vectors are the published deny lists."""

import socket
from ipaddress import ip_network

import pytest

from dispatcher.core.address import DENIED, is_allowed, refusal

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

METADATA = ("169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254")

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


@pytest.mark.parametrize("address", [*METADATA, "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::"])
def test_metadata_and_link_local_are_refused_whatever_is_allowed(address: str) -> None:
    assert refusal(address, EVERYTHING) is not None


def test_allowing_a_tunnel_does_not_allow_what_is_inside() -> None:
    assert refusal("64:ff9b::10.0.0.1", (ip_network("64:ff9b::/96"),)) is not None
    assert refusal("64:ff9b::8.8.8.8", (ip_network("64:ff9b::/96"),)) is None


# The deny list that webhook senders publish, by an address from within each network.
PUBLISHED = (
    *("0.1.2.3", "10.1.2.3", "100.64.1.2", "127.1.2.3", "169.254.1.2", "172.16.1.2", "192.0.0.1"),
    *("192.0.2.1", "192.88.99.1", "192.168.1.2", "198.18.1.2", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::8.8.8.8", "64:ff9b::8.8.8.8"),
    *("64:ff9b:1::1", "100::1", "2001:db8::1", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1"),
    *("fd00:ec2::254", "fe80::1", "ff00::1"),
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
    found = socket.getaddrinfo(host.strip("[]"), 443, type=socket.SOCK_STREAM)
    assert found
    assert all(refusal(str(info[4][0]), ()) is not None for info in found)
