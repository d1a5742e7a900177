"""Parse a captured request, and explain why it is not genuine: rule, expected and actual. Pure.

A file may be output of `curl -i`, `curl -v` or a proxy: a start line, `>` or `<` before each line,
CRLF or LF, and optionally the body after an empty line. Messages of `curl -v` itself
(`* Connected`, `} [5 bytes data]`) are skipped. Of a request and its response, only the request is
read.

If no signature matches, common mistakes are tried: a body changed in transit, a secret used as
text, a signature in another encoding. The result never contains a secret.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.receiver.errors import Reason, VerificationError
from holdfast.receiver.message.secret import PREFIX, Secret
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.wire import (
    IDEMPOTENCY_KEY,
    SIGNATURES_MAX,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

_START = re.compile(rb"(?:HTTP/[0-9.]+ [0-9]{3}\b|[A-Z]+ \S+ HTTP/[0-9.]+)")
_MARK = re.compile(rb"[<>] ?")
_SAID_BY_CURL = re.compile(rb"\*(?: |\Z)|[{}] \[[0-9]+ bytes data\]\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Fields = list[tuple[bytes, bytes]]


class NotAHeaderError(ValueError):
    """A line is not a header field. The message does not repeat its text, which may be secret."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The content of a file. `body` is None if the file ends after the headers."""

    headers: Fields
    body: bytes | None


def field_of(line: bytes) -> tuple[bytes, bytes]:
    """Parse `name: value`; raises `NotAHeaderError`."""
    name, separator, value = line.partition(b":")
    if not separator or not _NAME.fullmatch(name):
        raise NotAHeaderError("not `name: value`")
    return name, value.strip(b" \t\r\n")


def read_capture(content: bytes) -> Capture:
    """Parse a file with headers and an optional body; raises `NotAHeaderError`."""
    headers: Fields = []
    rest, number, mark = content, 0, b""
    while rest:
        line, _, rest = rest.partition(b"\n")
        number += 1
        line = line.rstrip(b"\r")
        if _SAID_BY_CURL.match(line):
            continue
        line_mark = line[:1] if _MARK.match(line) else b""
        if mark and line_mark and line_mark != mark:
            return Capture(headers, None)
        mark = mark or line_mark
        plain = _MARK.sub(b"", line, count=1) if line_mark else line
        if not plain:
            return Capture(headers, _body(rest, mark) or None)
        if not headers and _START.match(plain):
            continue
        try:
            headers.append(field_of(plain))
        except NotAHeaderError as error:
            raise NotAHeaderError(f"line {number}: {error}") from None
    return Capture(headers, None)


def _body(rest: bytes, mark: bytes) -> bytes:
    """Return the exact bytes after the headers, without the messages of `curl -v`."""
    while mark and rest:
        line, _, after = rest.partition(b"\n")
        if mark == b">" and line.startswith(b"<"):
            return b""  # the response; `curl -v` does not show the request body
        if not _SAID_BY_CURL.match(line.rstrip(b"\r")):
            break
        rest = after
    return rest


_YEAR_9999_DIGITS = 11
_STANDARD = "Standard Webhooks 1.0.0"
_OURS = "Holdfast's contract"

_RULES: Mapping[Reason, tuple[str, str]] = {
    Reason.MISSING_HEADER: (_STANDARD, "the headers webhook-id, -timestamp and -signature"),
    Reason.DUPLICATE_HEADER: (_OURS, "each of these headers once"),
    Reason.BAD_HEADER: (_OURS, "header values in ASCII"),
    Reason.BAD_ID: (_OURS, "an id of 1 to 256 characters A-Z a-z 0-9 _ -"),
    Reason.BAD_TIMESTAMP: (_STANDARD, "Unix seconds: ASCII digits without a leading zero"),
    Reason.TOO_OLD: (_STANDARD, "a signature not older than the tolerance"),
    Reason.TOO_NEW: (_STANDARD, "a signature not further in the future than the tolerance"),
    Reason.BAD_SIGNATURE: (_STANDARD, "an entry `v1,` and 44 characters of padded base64"),
    Reason.TOO_MANY_SIGNATURES: (_OURS, f"at most {SIGNATURES_MAX} signatures"),
    Reason.ENCODED_BODY: (_OURS, "no Content-Encoding: the signature covers unencoded bytes"),
    Reason.BAD_BODY: (_OURS, 'a body {"type","timestamp","sequence","key","data"}'),
    Reason.KEY_MISMATCH: (_OURS, "the same key in webhook-id, idempotency-key and body"),
    Reason.NO_MATCH: (_STANDARD, "HMAC-SHA256 of `id.timestamp.body` with a known secret"),
}
_HEADER_OF: Mapping[Reason, str] = {
    Reason.BAD_ID: WEBHOOK_ID,
    Reason.BAD_TIMESTAMP: WEBHOOK_TIMESTAMP,
    Reason.TOO_OLD: WEBHOOK_TIMESTAMP,
    Reason.TOO_NEW: WEBHOOK_TIMESTAMP,
    Reason.BAD_SIGNATURE: WEBHOOK_SIGNATURE,
    Reason.TOO_MANY_SIGNATURES: WEBHOOK_SIGNATURE,
    Reason.ENCODED_BODY: "content-encoding",
    Reason.NO_MATCH: WEBHOOK_SIGNATURE,
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """`hint` is the mistake that explains the mismatch, if one was found."""

    reason: str
    status: int
    detail: str
    rule: str
    expected: str
    found: str
    hint: str | None


def explain(
    error: VerificationError,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    secrets: Sequence[Secret],
    now: datetime,
) -> Explanation:
    """Explain why `headers` and `body` were refused with `error` at the time `now`."""
    fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    rule, expected = _RULES.get(error.reason, (_OURS, error.detail))
    hint = None
    if error.reason is Reason.NO_MATCH:
        expected = " or ".join(_signature(each.key, _signed(fields, body)) for each in secrets)
        hint = _accident(fields, body, secrets)
    return Explanation(
        str(error.reason),
        error.status,
        error.detail,
        rule,
        expected,
        _actual(error.reason, headers, fields, body, now),
        hint,
    )


def _actual(
    reason: Reason,
    headers: Sequence[tuple[bytes, bytes]],
    fields: Mapping[str, str],
    body: bytes,
    now: datetime,
) -> str:
    if reason in (Reason.TOO_OLD, Reason.TOO_NEW):
        if len(fields[WEBHOOK_TIMESTAMP]) > _YEAR_9999_DIGITS:
            return f"{fields[WEBHOOK_TIMESTAMP]}, after the year 9999"
        signed = datetime.fromtimestamp(int(fields[WEBHOOK_TIMESTAMP]), UTC)
        seconds = round((now - signed).total_seconds())
        return f"signed {rfc3339(signed)}, checked {rfc3339(now)}: {seconds} s"
    if reason is Reason.KEY_MISMATCH:
        return ", ".join(
            f"{name} {fields[name]}" for name in (WEBHOOK_ID, IDEMPOTENCY_KEY) if name in fields
        )
    if reason is Reason.BAD_BODY:
        return f"{len(body)} bytes, SHA-256 {hashlib.sha256(body).hexdigest()}"
    if reason in _HEADER_OF:
        return fields.get(_HEADER_OF[reason], "")
    return ", ".join(sorted(name.decode("latin-1").lower() for name, _ in headers)) or "no headers"


def _accident(fields: Mapping[str, str], body: bytes, secrets: Sequence[Secret]) -> str | None:
    signatures = fields[WEBHOOK_SIGNATURE].split(" ")
    for secret in secrets:
        for change, content in _changed(body):
            if _signature(secret.key, _signed(fields, content)) in signatures:
                return f"the signature matches the body {change}: its bytes were changed"
        for change, made in _mistaken(secret):
            if made(_signed(fields, body)) in signatures:
                return f"the sender {change}"
    return None


def _changed(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield forms that the body may have had before it was changed."""
    yield "without its last newline", body.removesuffix(b"\n").removesuffix(b"\r")
    yield "with a newline at its end", body + b"\n"
    yield "with a CRLF at its end", body + b"\r\n"
    yield "with LF in place of CRLF", body.replace(b"\r\n", b"\n")
    yield "with CRLF in place of LF", body.replace(b"\n", b"\r\n")
    yield "without its byte order mark", body.removeprefix(b"\xef\xbb\xbf")
    yield "without any bytes (sent empty)", b""
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError):
        return
    for change, separators in (("compact", (",", ":")), ("spaced", (", ", ": "))):
        for ascii_only in (False, True):
            form = f"{change}, {'escaped to ASCII' if ascii_only else 'in UTF-8'}"
            text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
            for newline in ("", "\n"):
                rewritten = (text + newline).encode(errors="replace")
                yield f"before it was parsed and serialized again ({form})", rewritten


def _mistaken(secret: Secret) -> Iterator[tuple[str, Callable[[bytes], str]]]:
    """Yield mistakes of senders, each with a function that signs that way."""
    encoded = base64.b64encode(secret.key)
    text = PREFIX.encode() + encoded
    yield f"used the secret's text, with {PREFIX}, in place of its bytes", _signer(text)
    yield f"used the text after {PREFIX} in place of the secret's bytes", _signer(encoded)
    yield (
        "encoded the signature as hex, not as base64",
        lambda content: "v1," + hmac.digest(secret.key, content, "sha256").hex(),
    )


def _signer(key: bytes) -> Callable[[bytes], str]:
    return lambda content: _signature(key, content)


def _signed(fields: Mapping[str, str], body: bytes) -> bytes:
    return f"{fields[WEBHOOK_ID]}.{fields[WEBHOOK_TIMESTAMP]}.".encode() + body


def _signature(key: bytes, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()
