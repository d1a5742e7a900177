"""The exact bytes of a request, and its signatures. Pure.

The signature is not the dispatcher's, because the kit also signs values that the dispatcher never
would: a timestamp such as `1_674`, an id with a dot.
"""

import base64
import hmac
from dataclasses import dataclass, field, replace

from holdfast.dispatcher.workbench.conform.sample import Delivery
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import (
    CONTENT_TYPE,
    IDEMPOTENCY_KEY,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Shot:
    """One request. Headers keep their order and bytes, and may occur twice."""

    key: str
    """The key of the delivery that it is or imitates."""
    headers: tuple[Header, ...] = field(repr=False)
    body: bytes = field(repr=False)
    method: str = "POST"

    def with_header(self, name: str, *values: str | bytes) -> "Shot":
        """Return a copy with these values of the header: none removes it, two repeat it."""
        lower = name.encode()
        new = tuple((lower, v if isinstance(v, bytes) else v.encode()) for v in values)
        others = tuple(header for header in self.headers if header[0] != lower)
        return replace(self, headers=(*others, *new))

    def with_body(self, body: bytes) -> "Shot":
        """Return a copy with another body and the same headers."""
        return replace(self, body=body)

    def by(self, method: str) -> "Shot":
        """Return a copy with another method."""
        return replace(self, method=method)


def mac(key: bytes, id_: str, timestamp: str | bytes, body: bytes) -> bytes:
    """Return HMAC-SHA256 over `id.timestamp.body` (Standard Webhooks 1.0.0)."""
    moment = timestamp if isinstance(timestamp, bytes) else timestamp.encode()
    return hmac.digest(key, b"%s.%s.%s" % (id_.encode(), moment, body), "sha256")


def signature(key: bytes, id_: str, timestamp: str | bytes, body: bytes) -> str:
    """Return `v1,` and the MAC in base64."""
    return "v1," + base64.b64encode(mac(key, id_, timestamp, body)).decode()


def shot(delivery: Delivery, secrets: tuple[Secret, ...], now: int) -> Shot:
    """Return the request that the dispatcher would send at `now`, Unix seconds."""
    key, timestamp = delivery.key, str(now)
    signatures = [signature(secret.key, key, timestamp, delivery.body) for secret in secrets]
    headers = {
        "content-type": CONTENT_TYPE,
        "user-agent": "Holdfast-Conform",
        "accept-encoding": "identity",
        WEBHOOK_ID: key,
        WEBHOOK_TIMESTAMP: timestamp,
        WEBHOOK_SIGNATURE: " ".join(signatures),
        IDEMPOTENCY_KEY: f'"{key}"',
    }
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return Shot(key, raw, delivery.body)
