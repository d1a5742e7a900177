"""The address guard: which addresses a webhook may be sent to.

The rule:

1. An address that embeds an IPv4 address is checked by both; every such form is unwrapped first
   (`_forms`). An IPv4-mapped one is checked as IPv4 only, because the system connects to that.
2. Link-local addresses (RFC 3927, RFC 4291) and the metadata addresses of the clouds (`METADATA`),
   which serve a machine's credentials, are refused even if an operator allows them. A metadata
   address is also refused at any position where a translator with its own prefix embeds the IPv4
   address (RFC 6052, section 2.2).
3. An address that an operator allows for the endpoint is permitted. An allowed tunnel does not
   allow the address inside it.
4. Any other address must be public unicast. For IPv4 that is everything outside the
   special-purpose registry (RFC 6890). For IPv6 it is 2000::/3, all that IANA has opened for global
   unicast (RFC 4291, section 2.4), without its special-purpose parts.

The list is explicit because `ipaddress.is_global` accepts multicast and tunnels.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


DENIED = _networks(
    "0.0.0.0/8",  # this network, RFC 791
    "10.0.0.0/8",  # private, RFC 1918
    "100.64.0.0/10",  # shared by carriers, RFC 6598
    "127.0.0.0/8",  # loopback, RFC 1122
    "169.254.0.0/16",  # link-local, RFC 3927
    "172.16.0.0/12",  # private, RFC 1918
    "192.0.0.0/24",  # IETF protocols, RFC 6890
    "192.0.2.0/24",  # documentation, RFC 5737
    "192.88.99.0/24",  # 6to4 relays, RFC 7526
    "192.168.0.0/16",  # private, RFC 1918
    "198.18.0.0/15",  # benchmarks, RFC 2544
    "198.51.100.0/24",  # documentation, RFC 5737
    "203.0.113.0/24",  # documentation, RFC 5737
    "224.0.0.0/4",  # multicast, RFC 5771
    "240.0.0.0/4",  # reserved and broadcast, RFC 1112
    # These three are all of IPv6 but 2000::/3; they hold loopback, NAT64 (RFC 6052, RFC 8215),
    # discard (RFC 6666), SRv6 (RFC 9602), unique local (RFC 4193), link-local and multicast.
    "::/3",
    "4000::/2",
    "8000::/1",
    "2001::/23",  # IETF protocols, RFC 2928, with Teredo, RFC 4380
    "2001:db8::/32",  # documentation, RFC 3849
    "2002::/16",  # 6to4, RFC 3056
    "3fff::/20",  # documentation, RFC 9637
)
"""Everything that is not public unicast."""

METADATA = _networks(
    "100.100.100.200",  # Alibaba Cloud
    "168.63.129.16",  # Azure's host; in a public range
    "169.254.169.254",  # most clouds; listed to be found inside other addresses
    "192.0.0.192",  # Oracle Cloud
    "fd00:42::42",  # Scaleway
    "fd00:c1::a9fe:a9fe",  # Oracle Cloud
    "fd00:ec2::23",  # AWS, credentials of pods
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google Cloud
)
"""Addresses at which clouds serve a machine's credentials."""

FORBIDDEN = (*_networks("169.254.0.0/16", "fe80::/10"), *METADATA)
"""Link-local and metadata: refused even if an operator allows them."""

_COMPATIBLE, _TRANSLATED, _NAT64 = (  # RFC 4291, 2.5.5.1; RFC 2765, 2.1; RFC 6052
    IPv6Network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215
_NO_EMBEDDING = (IPv6Address("::"), IPv6Address("::1"))
_NOWHERE = IPv4Network("0.0.0.0/8")
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")  # RFC 5214, section 6.1


def refusal(text: str, allowed: Sequence[Network]) -> str | None:
    """Return why a connection to the address `text` is refused, or None when it is allowed.

    `text` comes from the resolver, perhaps with a zone (`fe80::1%eth0`).
    """
    address = ip_address(text.partition("%")[0])
    forms = _forms(address)
    translated = _translated(address) if isinstance(address, IPv6Address) else ()
    if any(_within(form, FORBIDDEN) for form in forms) or any(
        _within(inner, METADATA) for inner in translated
    ):
        return f"{address} is link-local or a cloud metadata address"
    if all(_within(form, allowed) or not _within(form, DENIED) for form in forms):
        return None
    return f"{address} is a private or special-purpose address; see allow_cidrs of the endpoint"


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Return whether an operator allows this address explicitly, as plain http:// requires."""
    address = ip_address(text.partition("%")[0])
    return all(_within(form, allowed) for form in _forms(address))


def _forms(address: Address) -> list[Address]:
    """Return the address itself and every IPv4 address that it embeds."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    forms: list[Address] = [address]
    if address in _LOCAL_NAT64:
        # Only the network knows the length of its prefix; a wrong length reads zeros.
        forms += (inner for inner in _translated(address)[2:] if inner not in _NOWHERE)
    if address.sixtofour is not None:
        forms.append(address.sixtofour)
    if address.teredo is not None:
        forms += address.teredo
    last = any(address in network for network in (_COMPATIBLE, _TRANSLATED, _NAT64))
    if (last and address not in _NO_EMBEDDING) or address.packed[8:12] in _ISATAP:
        forms.append(IPv4Address(address.packed[12:]))
    return forms


def _translated(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 address behind prefixes of 32, 40, 48, 56, 64 and 96 bits (RFC 6052, 2.2)."""
    octets = address.packed[:8] + address.packed[9:]  # the ninth is skipped, and zero
    starts = (4, 5, 6, 7, 8, 11)
    return tuple(IPv4Address(octets[start : start + 4]) for start in starts)


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
