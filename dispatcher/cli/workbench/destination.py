"""Where `trigger` and `endpoint test` send: a URL with its secrets, or a configured endpoint."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.dispatcher.cli.workbench.options import secrets_of, usage
from holdfast.dispatcher.operators.config.environment import reference_rule
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import CommandError

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.listen.one_delivery import Destination

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
    from holdfast.dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - see options
    from holdfast.dispatcher.outbound.target import Target, url_fault  # noqa: PLC0415 - as above
    from holdfast.dispatcher.workbench.listen.one_delivery import Destination  # noqa: PLC0415 - as above

    if fault := url_fault(url):
        raise usage(f"--url: {fault}.", code="invalid_url")
    try:
        allowed = tuple(ip_network(cidr) for cidr in (*LOOPBACK, *cidrs))
    except ValueError as error:
        raise usage(f"--allow-cidr: {error}.", code="invalid_value") from None
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
    from holdfast.dispatcher.outbound.endpoint import endpoint_of  # noqa: PLC0415 - as above
    from holdfast.dispatcher.outbound.operator_headers import joined  # noqa: PLC0415 - as above
    from holdfast.dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - as above
    from holdfast.dispatcher.outbound.secrets import read_material, target_of  # noqa: PLC0415 - as above
    from holdfast.dispatcher.workbench.listen.one_delivery import Destination  # noqa: PLC0415 - as above

    with Endpoints.connect(dsn) as store:
        row: dict[str, Any] = store.unmasked_endpoint(name)
    stored = endpoint_of({**row, "headers": joined(row)})
    endpoint = stored.endpoint
    rule = reference_rule()
    material = read_material(stored, rule)
    if material.fault:
        raise CommandError(
            f"cannot send to endpoint {name} from this host: {material.fault}. Nothing was sent."
            " Run this where the dispatcher runs, with the same allowed references.",
            code="secret_unavailable",
        )
    composer = Composer(USER_AGENT, endpoint.envelope, material.headers)
    hidden = frozenset(header for header, _ in material.headers)
    target = target_of(endpoint, material)
    way = Destination(target, material.secrets, composer, hidden, material.hidden)
    return way, str(row["state"])
