"""Signatures of a delivery: Standard Webhooks 1.0.0, one `v1` (HMAC-SHA256) per active secret.

The timestamp is that of the attempt, so each attempt has its own signature, over the stored bytes.
It uses the standard library's HMAC, because the `standardwebhooks` library formats times and
decodes the body first, which takes longer than the rest of a request.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Sequence

from holdfast.receiver.message.secret import Secret


class Signer:
    """Signs the requests of one endpoint."""

    __slots__ = ("_keyed",)

    def __init__(self, secrets: Sequence[Secret]) -> None:
        # An HMAC with its key is copied for each signature: keying is half of the cost.
        self._keyed = tuple(hmac.new(secret.key, digestmod="sha256") for secret in secrets)

    def sign(self, key: str, timestamp: int, body: bytes) -> str:
        """Return the value of `webhook-signature`: one `v1,...` per secret, separated by spaces."""
        content = b"%s.%d.%s" % (key.encode(), timestamp, body)
        if len(self._keyed) == 1:
            return _signature(self._keyed[0], content)
        return " ".join([_signature(keyed, content) for keyed in self._keyed])


def _signature(keyed: hmac.HMAC, content: bytes) -> str:
    mac = keyed.copy()
    mac.update(content)
    return "v1," + b2a_base64(mac.digest(), newline=False).decode("ascii")
