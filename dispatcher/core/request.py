"""The request of one attempt."""

import re
from dataclasses import dataclass, field

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
class Request:
    """A POST: these headers, in this order, and exactly these bytes."""

    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)


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
