"""Which addresses a webhook may be sent to.

A written deny list instead of `ipaddress.is_global`, which lets multicast, NAT64 and 6to4 forms of
private addresses through. An address that carries another one inside (IPv4-mapped, NAT64, 6to4) is
judged by both. An operator may allow networks per endpoint; the link-local ones, where cloud
machines keep their credentials, stay forbidden.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DENIED: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
"""Special-purpose networks: private, shared, documentation, benchmarks, tunnels, multicast."""

FORBIDDEN: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
)
"""Link-local and cloud metadata: refused whatever an operator allows."""

_NAT64 = ip_network("64:ff9b::/96")
_LOW_32_BITS = 0xFFFFFFFF


def refusal(text: str, allowed: Sequence[Network]) -> str | None:
    """Return why the address `text` may not be connected to, or None when it may.

    `text` is what the resolver returned, perhaps with a zone (`fe80::1%eth0`).
    """
    address = ip_address(text.partition("%")[0])
    forms = _forms(address)
    if any(_within(form, FORBIDDEN) for form in forms):
        return f"{address} is link-local or a cloud metadata address"
    if all(_within(form, allowed) or not _within(form, DENIED) for form in forms):
        return None
    return f"{address} is a private or special-purpose address; see allow_cidrs of the endpoint"


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Return whether an operator named this address: what plain http:// needs."""
    address = ip_address(text.partition("%")[0])
    return all(_within(form, allowed) for form in _forms(address))


def _forms(address: Address) -> list[Address]:
    """Return the address as it is routed and, for a tunnel, the one inside as well."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]  # the system itself connects to this one
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address in _NAT64:
        return [address, IPv4Address(int(address) & _LOW_32_BITS)]
    return [address]


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
