"""The settings of `holdfast api serve`."""

from dataclasses import dataclass
from ipaddress import ip_address

from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES
from holdfast.sink.contract.exits import CommandError, ExitCode

BODY_BYTES_MAX = 1_048_576
"""Maximum size of a request body; a larger one is refused without being read."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the API listens and which clients it serves."""

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8480
    behind_proxy: bool = False
    """A proxy in front terminates TLS: cookies are `Secure`, and its forwarded headers are
    trusted.
    """
    names: tuple[str, ...] = ()
    """Accepted host names besides its own address and localhost."""
    connections: int = 8
    """Maximum number of database connections."""
    reissue_limit: int = ALONE_MAX
    """Actions that one person may repeat in 24 hours without a second person's approval."""
    undelivered_minutes: int = UNDELIVERED_MINUTES
    """Minutes after which an undelivered entry needs a person."""

    def check(self) -> None:
        """Raise `CommandError` if tokens would cross a network without TLS."""
        if not (self.behind_proxy or _is_loopback(self.host)):
            raise CommandError(
                f"{self.host} can be reached from other machines, and this server has no TLS:"
                " tokens would cross the network in clear text. Nothing was started; listen on"
                " 127.0.0.1, or put a proxy with TLS in front and pass --behind-proxy.",
                ExitCode.USAGE,
                code="tls_required",
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
