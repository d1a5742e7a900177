"""Requests with one fault each, made from a good delivery. Pure."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.dispatcher.workbench.conform.sample import Delivery
from holdfast.dispatcher.workbench.conform.shot import Shot, mac, shot, signature
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP

_TRIES_MAX = 60
UNKNOWN_SECRET = Secret(bytes(range(200, 232)))
"""A secret that no receiver has configured."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A delivery, the secret that signs it, and the current time in Unix seconds."""

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
        """A well-formed key that no delivery has."""
        return f"hf_{hashlib.sha256(self.delivery.key.encode()).hexdigest()[:32]}"

    def signed(self, *values: str | bytes) -> Shot:
        """Return the delivery with these values in the signature header."""
        return self.good.with_header(WEBHOOK_SIGNATURE, *values)

    def encoded(self, made: bytes) -> Shot:
        """Return the delivery with these bytes in place of the MAC."""
        return self.signed("v1," + base64.b64encode(made).decode())

    def aged(self, seconds: int) -> Shot:
        """Return the delivery correctly signed `seconds` ago; negative: in the future."""
        return shot(self.delivery, (self.secret,), self.now - seconds)

    def timestamped(self, text: str) -> Shot:
        """Return it with `text` as timestamp, signed over the text and over lenient readings of it.

        A lenient receiver may parse `text` as a number and verify over that number.
        """
        raw = text.encode()
        forms: Iterable[str | bytes] = (raw, str(self.now), f"{self.now}.0")
        return self.good.with_header(WEBHOOK_TIMESTAMP, raw).with_header(
            WEBHOOK_SIGNATURE, self._signatures(forms)
        )

    def named(self, id_: str) -> Shot:
        """Return it with another id, correctly signed."""
        made = signature(self.secret.key, id_, str(self.now), self.delivery.body)
        return self.good.with_header(WEBHOOK_ID, id_).with_header(WEBHOOK_SIGNATURE, made)

    def saying(self, body: bytes) -> Shot:
        """Return it with another body, correctly signed."""
        return shot(self.delivery.with_body(body), (self.secret,), self.now)

    def without(self, member: str) -> Shot:
        """Return it without one member of the body, correctly signed."""
        content = json.loads(self.delivery.body)
        return self.saying(compact({k: v for k, v in content.items() if k != member}))

    def with_member(self, member: str, value: object) -> Shot:
        """Return it with another value of one member of the body, correctly signed."""
        return self.saying(compact({**json.loads(self.delivery.body), member: value}))

    def with_data(self, form: Callable[[Any], object]) -> Shot:
        """Return it with `form` of each member of `data`, correctly signed."""
        data = json.loads(self.delivery.body)["data"]
        return self.with_member("data", {name: form(value) for name, value in data.items()})

    def with_raw_member(self, text: bytes) -> Shot:
        """Return it with `text` as an additional member of the body, correctly signed."""
        return self.saying(b"%s,%s}" % (self.delivery.body.removesuffix(b"}"), text))

    def spaced(self) -> bytes:
        """Return an equivalent body with other white space."""
        return json.dumps(json.loads(self.delivery.body), indent=1).encode()

    def compressed(self, *, signs_plain: bool) -> Shot:
        """Return it gzipped, signed over the plain or the compressed body."""
        packed = gzip.compress(self.delivery.body, mtime=0)
        signed = self.good if signs_plain else self.saying(packed)
        return signed.with_body(packed).with_header("content-encoding", "gzip")

    def url_safe(self) -> Shot:
        """Return it with the MAC in base64url, signed at a time where that text differs."""
        for age in range(_TRIES_MAX):
            made = Aim(self.delivery, self.secret, self.now - age)
            text = base64.urlsafe_b64encode(made.good_mac).decode()
            if "-" in text or "_" in text:
                return made.signed(f"v1,{text}")
        raise AssertionError("base64 and base64url are equal for all sixty MACs")

    def many(self, count: int) -> Shot:
        """Return it with `count` signatures; only the last is valid."""
        others = [self.of(Secret(bytes([n % 256]) * 32)) for n in range(count - 1)]
        return self.signed(" ".join([*others, self.good_signature]))

    def of(self, secret: Secret) -> str:
        """Return the signature by another secret."""
        return signature(secret.key, self.delivery.key, str(self.now), self.delivery.body)

    def _signatures(self, timestamps: Iterable[str | bytes]) -> str:
        key, body = self.secret.key, self.delivery.body
        return " ".join(signature(key, self.delivery.key, each, body) for each in timestamps)


def compact(value: object) -> bytes:
    """Return `value` as JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
