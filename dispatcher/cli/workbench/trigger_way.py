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
    from dispatcher.outbound.endpoint import endpoint_of  # noqa: PLC0415 - as above
    from dispatcher.outbound.headers import joined  # noqa: PLC0415 - as above
    from dispatcher.outbound.request import USER_AGENT, Composer  # noqa: PLC0415 - as above
    from dispatcher.outbound.secrets import read_material, target_of  # noqa: PLC0415 - as above
    from dispatcher.workbench.listen.one_delivery import Way  # noqa: PLC0415 - as above

    with Endpoints.connect(dsn) as store:
        row: dict[str, Any] = store.whole_endpoint(name)
    stored = endpoint_of({**row, "headers": joined(row)})
    endpoint = stored.endpoint
    rule = reference_rule()
    material = read_material(stored, rule)
    if material.fault:
        raise CommandError(
            f"nothing can be sent to endpoint {name} from here: {material.fault}. Nothing was sent;"
            " run this where its dispatcher runs, with the references that it is allowed."
        )
    composer = Composer(USER_AGENT, endpoint.envelope, material.headers)
    hidden = frozenset(header for header, _ in material.headers)
    way = Way(target_of(endpoint, material), material.secrets, composer, hidden, material.hidden)
    return way, str(row["state"])
