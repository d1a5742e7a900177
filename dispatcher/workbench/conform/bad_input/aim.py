"""Requests that are wrong in one way, made from one good delivery. Pure."""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from dispatcher.receiver.message.secret import Secret
from dispatcher.workbench.conform.sample import Delivery
from dispatcher.workbench.conform.shot import Shot, mac, shot, signature
from sink.contract.wire import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP

_TRIES_MAX = 60
UNKNOWN_SECRET = Secret(bytes(range(200, 232)))
"""A secret that no receiver has."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A delivery, the secret that would sign it, and the clock (Unix seconds)."""

    delivery: Delivery
    secret: Secret
    now: int

    @property
    def good(self) -> Shot:
        return shot(self.delivery, (self.secret,), self.now)

    @property
    def good_mac(self) -> bytes:
        return mac(self.secret.key, self.delivery.key, str(self.now), self.delivery.body)

    @property
    def good_signature(self) -> str:
        return signature(self.secret.key, self.delivery.key, str(self.now), self.delivery.body)

    @property
    def other_key(self) -> str:
        """A key in the right form, of no delivery."""
        return f"hf_{hashlib.sha256(self.delivery.key.encode()).hexdigest()[:32]}"

    def signed(self, *values: str | bytes) -> Shot:
        """Return the delivery with these values as its signature header."""
        return self.good.with_header(WEBHOOK_SIGNATURE, *values)

    def encoded(self, made: bytes) -> Shot:
        """Return the delivery with these bytes, in base64, in place of the MAC."""
        return self.signed("v1," + base64.b64encode(made).decode())

    def aged(self, seconds: int) -> Shot:
        """Return the delivery, properly signed that many seconds ago; negative is ahead."""
        return shot(self.delivery, (self.secret,), self.now - seconds)

    def timestamped(self, text: str) -> Shot:
        """Return it with `text` as timestamp, signed as it stands and as lenient readers read it.

        A receiver that reads `text` as a number may make the signed text from the number.
        """
        raw = text.encode()
        forms: Iterable[str | bytes] = (raw, str(self.now), f"{self.now}.0")
        return self.good.with_header(WEBHOOK_TIMESTAMP, raw).with_header(
            WEBHOOK_SIGNATURE, self._signatures(forms)
        )

    def named(self, id_: str) -> Shot:
        """Return it under another id, properly signed."""
        made = signature(self.secret.key, id_, str(self.now), self.delivery.body)
        return self.good.with_header(WEBHOOK_ID, id_).with_header(WEBHOOK_SIGNATURE, made)

    def saying(self, body: bytes) -> Shot:
        """Return it with another body, properly signed."""
        return shot(self.delivery.with_body(body), (self.secret,), self.now)

    def without(self, member: str) -> Shot:
        """Return it without one member of the body, properly signed."""
        content = json.loads(self.delivery.body)
        return self.saying(compact({k: v for k, v in content.items() if k != member}))

    def with_member(self, member: str, value: object) -> Shot:
        """Return it with another value of one member of the body, properly signed."""
        return self.saying(compact({**json.loads(self.delivery.body), member: value}))

    def with_raw_member(self, text: bytes) -> Shot:
        """Return it with `text` as a further member of the body, properly signed."""
        return self.saying(b"%s,%s}" % (self.delivery.body.removesuffix(b"}"), text))

    def spaced(self) -> bytes:
        """Return the body as another writer would write it: it means the same."""
        return json.dumps(json.loads(self.delivery.body), indent=1).encode()

    def compressed(self, *, signs_plain: bool) -> Shot:
        """Return it gzipped, the signature over the plain body or over the compressed one."""
        packed = gzip.compress(self.delivery.body, mtime=0)
        signed = self.good if signs_plain else self.saying(packed)
        return signed.with_body(packed).with_header("content-encoding", "gzip")

    def url_safe(self) -> Shot:
        """Return it with the MAC in base64url, at a moment where that is not the same text."""
        for age in range(_TRIES_MAX):
            made = Aim(self.delivery, self.secret, self.now - age)
            text = base64.urlsafe_b64encode(made.good_mac).decode()
            if "-" in text or "_" in text:
                return made.signed(f"v1,{text}")
        raise AssertionError("no MAC of sixty has a character that base64url writes differently")

    def many(self, count: int) -> Shot:
        """Return it with `count` signatures, of which only the last is good."""
        others = [self.of(Secret(bytes([n % 256]) * 32)) for n in range(count - 1)]
        return self.signed(" ".join([*others, self.good_signature]))

    def of(self, secret: Secret) -> str:
        """Return the signature that another secret makes."""
        return signature(secret.key, self.delivery.key, str(self.now), self.delivery.body)

    def _signatures(self, timestamps: Iterable[str | bytes]) -> str:
        key, body = self.secret.key, self.delivery.body
        return " ".join(signature(key, self.delivery.key, each, body) for each in timestamps)


def compact(value: object) -> bytes:
    """Return `value` as JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
