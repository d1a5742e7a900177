"""The request of one attempt, and the target it goes to."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dispatcher.core.address import Network
from sink.contract.wire import (
    CONTENT_TYPE,
    IDEMPOTENCY_KEY,
    TRACEPARENT,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Target:
    """Where an endpoint's requests go and what the address guard allows there.

    Connections are shared among requests to an equal target and never between two endpoints.
    """

    endpoint_id: int
    url: str
    allowed: tuple[Network, ...]
    connect_timeout: float

    @property
    def encrypted(self) -> bool:
        """Whether the URL is https."""
        return self.url.startswith("https:")


@dataclass(frozen=True, slots=True)
class Request:
    """A POST: these headers, in this order, and exactly these bytes."""

    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)


def url_fault(url: str) -> str | None:
    """Return what is wrong with an endpoint's URL, or None."""
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        return "its URL holds spaces or control characters"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is no number
    except ValueError as error:
        return f"its URL cannot be read: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "its URL is not http:// or https:// with a host"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "its URL holds a user, a password or a fragment"
    return None


def build_request(
    *,
    key: str,
    idempotency_key: str,
    timestamp: int,
    signature: str,
    traceparent: str | None,
    user_agent: str,
    body: bytes,
) -> Request:
    """Compose the request. `timestamp` is Unix seconds of this attempt, by this host's clock."""
    headers = [
        ("content-type", CONTENT_TYPE),
        ("user-agent", user_agent),
        ("accept-encoding", "identity"),
        (WEBHOOK_ID, key),
        (WEBHOOK_TIMESTAMP, str(timestamp)),
        (WEBHOOK_SIGNATURE, signature),
        (IDEMPOTENCY_KEY, idempotency_key),
    ]
    # An entry's trace is a courtesy of whoever wrote it: a malformed one is left out, not refused.
    if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
        headers.append((TRACEPARENT, traceparent))
    return Request(tuple(headers), body)
