"""The destination of an endpoint's requests and the settings of its connections."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.dispatcher.outbound.address import Network


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of an endpoint's requests and its allowed addresses.

    Requests to an equal target share connections; two endpoints never do.
    """

    endpoint_id: int
    url: str
    allowed: tuple[Network, ...]
    connect_timeout: float
    total_timeout: float
    """Time limit of a request in seconds, including connecting; the connections enforce it."""
    ca_pem: bytes | None = field(default=None, repr=False)
    """Additional certificate authorities of this target."""
    client_cert_pem: bytes | None = field(default=None, repr=False)
    client_key_pem: bytes | None = field(default=None, repr=False)

    @property
    def encrypted(self) -> bool:
        """Whether the URL is https."""
        return self.url[:6].lower() == "https:"


def url_fault(url: str) -> str | None:
    """Return what is wrong with an endpoint's URL, or None."""
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        return "its URL holds spaces or control characters"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        return f"its URL cannot be read: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "its URL is not http:// or https:// with a host"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "its URL holds a user, a password or a fragment"
    return None
