"""What `holdfast api serve` was told."""

from dataclasses import dataclass
from ipaddress import ip_address

from dispatcher.operators.common.person import ALONE_MAX
from sink.contract.exits import CommandError, ExitCode

BODY_BYTES_MAX = 1_048_576
"""A larger request body is refused before it is read on."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the API listens and whom it answers."""

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8480
    behind_proxy: bool = False
    """A proxy in front speaks TLS: cookies are for https alone, and its forwarded headers count."""
    names: tuple[str, ...] = ()
    """Names by which it may be asked, beside its own address and localhost."""
    connections: int = 8
    """To the database, at most."""
    reissue_limit: int = ALONE_MAX
    """More actions than so many at once are repeated only with a second person's approval."""

    def check(self) -> None:
        """Raise `CommandError` where a token would cross a network unprotected."""
        if not (self.behind_proxy or _is_loopback(self.host)):
            raise CommandError(
                f"{self.host} can be reached from other machines, and this server speaks no TLS: a"
                " token would be there for everybody to read. Nothing was started; listen on"
                " 127.0.0.1, or put a proxy with TLS in front and say --behind-proxy.",
                ExitCode.USAGE,
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
