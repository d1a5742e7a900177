"""Where `trigger` and `endpoint test` send: a URL with its secrets, or a configured endpoint."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dispatcher.cli.workbench.options import secrets_of, usage
from dispatcher.operators.config.here import reference_rule
from dispatcher.operators.streams.operator import operator_store
from sink.contract.exits import CommandError

if TYPE_CHECKING:
    from dispatcher.workbench.listen.one_delivery import Destination

LOOPBACK = ("127.0.0.0/8", "::1/128")
CONNECT_SECONDS = 5.0


def is_loopback(url: str) -> bool:
    """Return whether the host of `url` is a loopback address or `localhost`."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def from_url(
    url: str, references: Sequence[str] | None, cidrs: Sequence[str], total_timeout: float
) -> "Destination":
    """Return the destination for a URL; loopback addresses are allowed. Raises `CommandError`."""
    from dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - see options
    from dispatcher.outbound.target import Target, url_fault  # noqa: PLC0415 - as above
    from dispatcher.workbench.listen.one_delivery import Destination  # noqa: PLC0415 - as above

    if fault := url_fault(url):
        raise usage(f"--url: {fault}.")
    try:
        allowed = tuple(ip_network(cidr) for cidr in (*LOOPBACK, *cidrs))
    except ValueError as error:
        raise usage(f"--allow-cidr: {error}.") from None
    connect_timeout = min(CONNECT_SECONDS, total_timeout)
    return Destination(
        Target(0, url, allowed, connect_timeout, total_timeout),
        tuple(secrets_of(references)),
        Composer(USER_AGENT),
    )


def from_endpoint(name: str, dsn: str | None) -> tuple["Destination", str]:
    """Return the destination for an endpoint of the database, and its state.

    Its secrets, headers and certificates are loaded as the dispatcher loads them. Raises
    `CommandError`.
    """
    from dispatcher.outbound.endpoint import Endpoint, EndpointRow  # noqa: PLC0415 - as above
    from dispatcher.outbound.headers import joined  # noqa: PLC0415 - as above
    from dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - as above
    from dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - as above
    from dispatcher.outbound.target import Target  # noqa: PLC0415 - as above
    from dispatcher.workbench.listen.one_delivery import Destination  # noqa: PLC0415 - as above
    from sink.contract.states import EnvelopeStyle, OrderPolicy  # noqa: PLC0415 - as above

    with operator_store(dsn) as store:
        row: dict[str, Any] = store.whole_endpoint(name)
    endpoint = Endpoint(
        id=row["id"],
        name=row["name"],
        url=row["url"],
        allowed=tuple(ip_network(cidr) for cidr in row["allow_cidrs"]),
        connect_timeout=row["connect_timeout_ms"] / 1000,
        total_timeout=row["total_timeout_ms"] / 1000,
        concurrency=row["concurrency"],
        schedule_seconds=tuple(row["schedule_seconds"]),
        order_policy=OrderPolicy(row["order_policy"]),
        envelope=EnvelopeStyle(row["envelope"]),
        headers=tuple(sorted(joined(row).items())),
        ca_ref=row["ca_ref"],
        client_cert_ref=row["client_cert_ref"],
        client_key_ref=row["client_key_ref"],
    )
    rule = reference_rule()
    material = read_material(EndpointRow(endpoint, True, row["secret_refs"]), rule)
    if material.fault:
        raise CommandError(
            f"cannot send to endpoint {name} from this host: {material.fault}. Nothing was sent."
            " Run this where the dispatcher runs, with the same allowed references."
        )
    target = Target(
        endpoint.id,
        endpoint.url,
        endpoint.allowed,
        endpoint.connect_timeout,
        endpoint.total_timeout,
        material.ca_pem,
        material.client_cert_pem,
        material.client_key_pem,
    )
    composer = Composer(USER_AGENT, endpoint.envelope, material.headers)
    hidden = frozenset(header for header, _ in material.headers)
    way = Destination(target, material.secrets, composer, hidden, material.hidden)
    return way, str(row["state"])
