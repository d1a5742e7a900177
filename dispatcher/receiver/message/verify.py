"""Verifies deliveries: Standard Webhooks 1.0.0, strictly, over the raw bytes.

Tests compare it with the `standardwebhooks` library. That library is not used here, because it
raises many kinds of exception for malformed input, rejects a good signature beside a malformed one,
accepts timestamps such as `1_674` or `1674e0`, and is slow. Here every failure is a
`VerificationError` with a reason. PROTOCOL.md has the rules.
"""

import hmac
import re
import time
from binascii import a2b_base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.receiver.errors import Reason, VerificationError
from holdfast.receiver.message.body import Body, is_key, parse_body
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.compatibility import UTC
from holdfast.sink.contract.wire import (
    IDEMPOTENCY_KEY,
    SIGNATURES_MAX,
    TOLERANCE_SECONDS,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

Headers = Iterable[tuple[bytes, bytes]] | Mapping[str, str]
"""Header fields as pairs (ASGI) or as a mapping. Names are case-insensitive.

In a mapping, repeated headers are joined with a comma (WSGI, PEP 3333).
"""

_CONTENT_ENCODING = "content-encoding"
_READ = (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE, IDEMPOTENCY_KEY, _CONTENT_ENCODING)
_REQUIRED = (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE)
_NAMES: dict[bytes | str, str] = {
    form: name for name in _READ for form in (name, name.encode("ascii"))
}

# No dot: with one, the same signed text could be split in two ways.
_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
# ASCII digits without a leading zero: one text for each number.
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,11}")
# 32 bytes of SHA-256 in padded standard base64; the last character before `=` carries four bits.
_SIGNATURE = re.compile(r"v1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)")
# A signature of any scheme next to a comma: signatures are separated by spaces.
_JOINED = re.compile(r"v[0-9]+[a-z]*,[A-Za-z0-9+/]{16,}={0,2},|,v[0-9]+[a-z]*,[A-Za-z0-9+/]{16,}")


@dataclass(frozen=True, slots=True)
class Signed:
    """The authenticated sender of a request; the body is not parsed."""

    id: str
    timestamp: datetime
    """When this attempt was signed, by the sender's clock."""
    secret: Secret
    """The first of the receiver's secrets that matched; it signs the receipt."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery: its parsed body and its exact bytes."""

    key: str
    timestamp: datetime
    """When this attempt was signed. `body.timestamp` is when the decision occurred."""
    body: Body
    raw: bytes = field(repr=False)
    secret: Secret = field(repr=False)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A verified inquiry for the outcome of `key`."""

    key: str
    timestamp: datetime
    secret: Secret = field(repr=False)


def verify(
    headers: Headers,
    body: bytes,
    secrets: Sequence[Secret],
    *,
    now: datetime | None = None,
    tolerance_seconds: int = TOLERANCE_SECONDS,
) -> Delivery:
    """Verify `headers` and the raw `body` as a delivery; raises only `VerificationError`.

    `now` defaults to the host's clock. The id must equal the body's key, and so must the
    Idempotency-Key if there is one, quoted (RFC 9651) or bare.
    """
    fields = _fields(headers)
    id_, moment, secret = _signed(fields, body, secrets, now, tolerance_seconds)
    parsed = parse_body(body)
    if id_ != parsed.key:
        raise VerificationError(Reason.KEY_MISMATCH, f"{WEBHOOK_ID} is not the key of the body")
    idempotency_key = fields.get(IDEMPOTENCY_KEY)
    if idempotency_key is not None and idempotency_key not in {parsed.key, f'"{parsed.key}"'}:
        raise VerificationError(
            Reason.KEY_MISMATCH, f"{IDEMPOTENCY_KEY} is not the key of the body"
        )
    return Delivery(id_, moment, parsed, body, secret)


def verify_inquiry(
    headers: Headers,
    body: bytes,
    key: str,
    secrets: Sequence[Secret],
    *,
    now: datetime | None = None,
    tolerance_seconds: int = TOLERANCE_SECONDS,
) -> Inquiry:
    """Verify an inquiry for `key`, taken from the path; raises only `VerificationError`.

    An inquiry is signed over an empty body, which no delivery has, so one cannot pass as the other.
    """
    if not is_key(key):
        raise VerificationError(Reason.BAD_ID, "the path does not end in a key")
    if body:
        raise VerificationError(Reason.BAD_BODY, "an inquiry has no body")
    signed = verify_signature(headers, body, secrets, now=now, tolerance_seconds=tolerance_seconds)
    if signed.id != key:
        raise VerificationError(Reason.KEY_MISMATCH, f"{WEBHOOK_ID} is not the key of the path")
    return Inquiry(key, signed.timestamp, signed.secret)


def verify_signature(
    headers: Headers,
    body: bytes,
    secrets: Sequence[Secret],
    *,
    now: datetime | None = None,
    tolerance_seconds: int = TOLERANCE_SECONDS,
) -> Signed:
    """Verify signature and age of a request from any Standard Webhooks sender, not its body.

    Raises only `VerificationError`.
    """
    return Signed(*_signed(_fields(headers), body, secrets, now, tolerance_seconds))


def _signed(
    fields: Mapping[str, str],
    body: bytes,
    secrets: Sequence[Secret],
    now: datetime | None,
    tolerance_seconds: int,
) -> tuple[str, datetime, Secret]:
    for name in _REQUIRED:
        if not fields.get(name):
            raise VerificationError(Reason.MISSING_HEADER, f"{name} is missing or empty")
    if fields.get(_CONTENT_ENCODING, "identity").lower() != "identity":
        raise VerificationError(Reason.ENCODED_BODY, "the signature covers unencoded bytes only")
    id_, timestamp = fields[WEBHOOK_ID], fields[WEBHOOK_TIMESTAMP]
    if not _ID.fullmatch(id_):
        raise VerificationError(Reason.BAD_ID, f"{WEBHOOK_ID} may contain only A-Z a-z 0-9 _ -")
    moment = _moment(timestamp, now, tolerance_seconds)
    candidates = _candidates(fields[WEBHOOK_SIGNATURE])
    text = f"{id_}.{timestamp}.".encode("ascii") + body
    return id_, moment, _matching(secrets, candidates, text)


def _fields(headers: Headers) -> dict[str, str]:
    """Return the relevant fields by lower-case name; each may occur only once."""
    pairs: Iterable[tuple[bytes | str, bytes | str]] = (
        headers.items() if isinstance(headers, Mapping) else headers
    )
    fields: dict[str, str] = {}
    for name_sent, value in pairs:
        name = _NAMES.get(name_sent.lower())
        if name is None:
            continue
        if name in fields:
            raise VerificationError(Reason.DUPLICATE_HEADER, f"{name} occurs more than once")
        if not value.isascii():
            raise VerificationError(Reason.BAD_HEADER, f"{name} contains non-ASCII characters")
        fields[name] = value if isinstance(value, str) else value.decode("ascii")
    if isinstance(headers, Mapping) and _JOINED.search(fields.get(WEBHOOK_SIGNATURE, "")):
        raise VerificationError(
            Reason.DUPLICATE_HEADER, f"{WEBHOOK_SIGNATURE} has commas between signatures"
        )
    return fields


def _moment(text: str, now: datetime | None, tolerance_seconds: int) -> datetime:
    if not _TIMESTAMP.fullmatch(text):
        raise VerificationError(Reason.BAD_TIMESTAMP, f"{WEBHOOK_TIMESTAMP} is not Unix seconds")
    seconds = int(text)
    age_seconds = int(time.time() if now is None else now.timestamp()) - seconds
    if age_seconds > tolerance_seconds:
        raise VerificationError(Reason.TOO_OLD, f"signed more than {tolerance_seconds} s ago")
    if age_seconds < -tolerance_seconds:
        raise VerificationError(
            Reason.TOO_NEW, f"signed more than {tolerance_seconds} s in the future"
        )
    return datetime.fromtimestamp(seconds, UTC)


def _candidates(header: str) -> list[bytes]:
    """Return the MACs of the well-formed `v1` entries.

    Others are skipped, so that a future scheme can appear beside a v1 signature.
    """
    entries = header.split(" ", SIGNATURES_MAX)
    if len(entries) > SIGNATURES_MAX:
        raise VerificationError(
            Reason.TOO_MANY_SIGNATURES,
            f"{WEBHOOK_SIGNATURE} has more than {SIGNATURES_MAX}",
        )
    matches = [_SIGNATURE.fullmatch(entry) for entry in entries]
    macs = [a2b_base64(match[1]) for match in matches if match]
    if not macs:
        raise VerificationError(
            Reason.BAD_SIGNATURE, f"{WEBHOOK_SIGNATURE} has no v1 entry of 32 bytes in base64"
        )
    return macs


def _matching(secrets: Sequence[Secret], candidates: list[bytes], text: bytes) -> Secret:
    matching: Secret | None = None
    for secret in secrets:
        mac = hmac.digest(secret.key, text, "sha256")
        # All comparisons are made, so that the time does not reveal which one matched.
        matched = [hmac.compare_digest(mac, candidate) for candidate in candidates]
        if any(matched) and matching is None:
            matching = secret
    if matching is None:
        raise VerificationError(Reason.NO_MATCH, "no signature was made with an accepted secret")
    return matching
