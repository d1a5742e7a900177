"""Signatures of a delivery: Standard Webhooks 1.0.0, one `v1` (HMAC-SHA256) per active secret.

The HMAC is that of the `standardwebhooks` library. The timestamp is that of the attempt, so a
signature is made for each attempt, over the bytes that were stored.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import http_sf
from standardwebhooks import Webhook

from dispatcher.receiver.secret import Secret


class Signer:
    """Signs for one endpoint."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._webhooks = [Webhook(secret.key) for secret in secrets]

    def sign(self, key: str, timestamp: int, body: bytes) -> str:
        """Return the value of `webhook-signature`: `v1,...` per secret, with spaces between."""
        moment = datetime.fromtimestamp(timestamp, UTC)
        text = body.decode()
        return " ".join(webhook.sign(key, moment, text) for webhook in self._webhooks)


def structured_string(text: str) -> str:
    """Return `text` as a structured-field string (RFC 9651): with its quotes."""
    return http_sf.ser(text)
