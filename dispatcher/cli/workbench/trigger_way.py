"""Where `holdfast trigger` sends: a URL with its secrets, or an endpoint as it is set up."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dispatcher.cli.workbench.wire_options import secrets_of, usage
from dispatcher.operators.config.environment import reference_rule
from dispatcher.operators.endpoints.store import Endpoints
from sink.contract.exits import CommandError

if TYPE_CHECKING:
    from dispatcher.workbench.listen.one_delivery import Way

LOOPBACK = ("127.0.0.0/8", "::1/128")
CONNECT_SECONDS = 5.0


def is_loopback(url: str) -> bool:
    """Return whether `url` names this machine: a loopback address, or `localhost`."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def way_to_url(
    url: str, references: Sequence[str] | None, cidrs: Sequence[str], total_timeout: float
) -> "Way":
    """Return the way to a URL; loopback addresses are allowed. Raises `CommandError`."""
    from dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - see wire_options
    from dispatcher.outbound.target import Target, url_fault  # noqa: PLC0415 - as above
    from dispatcher.workbench.listen.one_delivery import Way  # noqa: PLC0415 - as above

    if fault := url_fault(url):
        raise usage(f"--url: {fault}.")
    try:
        allowed = tuple(ip_network(cidr) for cidr in (*LOOPBACK, *cidrs))
    except ValueError as error:
        raise usage(f"--allow-cidr: {error}.") from None
    connect_timeout = min(CONNECT_SECONDS, total_timeout)
    return Way(
        Target(0, url, allowed, connect_timeout, total_timeout),
        tuple(secrets_of(references)),
        Composer(USER_AGENT),
    )


def way_to_endpoint(name: str, dsn: str | None) -> tuple["Way", str]:
    """Return the way to an endpoint of the database, and its state; raises `CommandError`.

    Its secrets, headers and certificates are read here, as a dispatcher would read them.
    """
    from dispatcher.outbound.endpoint import Endpoint, EndpointRow  # noqa: PLC0415 - as above
    from dispatcher.outbound.headers import joined  # noqa: PLC0415 - as above
    from dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - as above
    from dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - as above
    from dispatcher.outbound.target import Target  # noqa: PLC0415 - as above
    from dispatcher.workbench.listen.one_delivery import Way  # noqa: PLC0415 - as above
    from sink.contract.states import EnvelopeStyle, OrderPolicy  # noqa: PLC0415 - as above

    with Endpoints.connect(dsn) as store:
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
            f"nothing can be sent to endpoint {name} from here: {material.fault}. Nothing was sent;"
            " run this where its dispatcher runs, with the references that it is allowed."
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
    way = Way(target, material.secrets, composer, hidden, material.hidden)
    return way, str(row["state"])
