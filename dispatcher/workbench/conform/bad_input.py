"""The table of bad input: requests that a receiver must refuse, one rule each. Pure."""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.dispatcher.workbench.conform.aim import UNKNOWN_SECRET, Aim
from holdfast.dispatcher.workbench.conform.rules import Rule, Severity
from holdfast.dispatcher.workbench.conform.shot import Shot
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import (
    IDEMPOTENCY_KEY,
    TOLERANCE_SECONDS,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

Make = Callable[[Aim], Shot]


@dataclass(frozen=True, slots=True)
class BadInput:
    """A request to refuse, and the status that PROTOCOL.md gives it."""

    rule: Rule
    status: int
    make: Make


@dataclass(frozen=True, slots=True)
class Check:
    """A line of PROTOCOL.md section 2."""

    number: int
    status: int
    fix: str
    also: str = ""

    @property
    def source(self) -> str:
        return f"PROTOCOL.md section 2, check {self.number}{self.also}"


_HEADERS = "; Standard Webhooks 1.0.0, Webhook headers"
_SCHEME = "; Standard Webhooks 1.0.0, Signature scheme"
_VERIFYING = "; Standard Webhooks 1.0.0, Verifying signatures"
TWICE = Check(
    4, 400, "Read the raw header list and refuse a name that occurs twice.", "; RFC 9110 5.2"
)
ASCII = Check(5, 400, "Refuse these headers when they hold a byte above 0x7F.", "; RFC 9110 5.5")
MISSING = Check(6, 400, "Refuse the request before computing any MAC.", _HEADERS)
ENCODED = Check(
    7,
    400,
    "Verify the received bytes; disable decompression for this path.",
    "; RFC 9110 8.4",
)
ID = Check(8, 400, "Match the whole id against [A-Za-z0-9_-]{1,256}.", _SCHEME)
DIGITS = Check(
    9,
    400,
    "Match the header against 0|[1-9][0-9]{0,11} (ASCII digits) before parsing it as a number.",
    _HEADERS,
)
AGE = Check(
    10,
    401,
    "Compare the timestamp with your clock and refuse a difference over 300 s, past or future.",
    _VERIFYING,
)
COUNT = Check(11, 400, "Count the entries first and refuse more than 16.")
FORM = Check(
    12,
    400,
    "Match each entry against v1,[A-Za-z0-9+/]{43}= and catch errors of your base64 decoder; answer"
    " 400, never 500.",
    _HEADERS,
)
MATCH = Check(
    13,
    401,
    "Compute the HMAC over id.timestamp.body with the received bytes, never over JSON that was"
    " parsed and serialized again.",
    _SCHEME,
)
BODY = Check(14, 400, "Validate the body after the signature; answer 400, never 500.")
KEY = Check(15, 400, "Compare webhook-id with the body's key.")
IDEMPOTENCY = Check(
    16,
    400,
    "Compare Idempotency-Key, with or without its quotes, with the key.",
    "; draft-ietf-httpapi-idempotency-key-header",
)


def row(
    id_: str, title: str, check: Check, make: Make, severity: Severity = Severity.MUST
) -> BadInput:
    return BadInput(Rule(id_, title, severity, check.source, check.fix), check.status, make)


def headers() -> tuple[BadInput, ...]:
    names = (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE)
    short = {name: name.removeprefix("webhook-") for name in names}
    return (
        *(
            row(
                f"header.no-{short[name]}",
                f"refuses a request without {name}",
                MISSING,
                partial(_with, name, ()),
            )
            for name in names
        ),
        *(
            row(
                f"header.empty-{short[name]}",
                f"refuses an empty {name}",
                MISSING,
                partial(_with, name, ("",)),
            )
            for name in names
        ),
        *(
            row(
                f"header.two-{short[name]}s",
                f"refuses two {name} headers",
                TWICE,
                partial(_with_two, name),
            )
            for name in names
        ),
        row(
            "header.beyond-ascii",
            "refuses a signature header with non-ASCII characters",
            ASCII,
            lambda aim: aim.signed(f"{aim.good_signature} v1,é".encode()),
        ),
        row("id.dot", "refuses an id with a dot", ID, lambda aim: aim.named("hf.conform")),
        row("id.long", "refuses an id of 257 characters", ID, lambda aim: aim.named("x" * 257)),
        row(
            "id.not-signed",
            "refuses an id other than the signed one",
            MATCH,
            lambda aim: aim.good.with_header(WEBHOOK_ID, aim.other_key),
        ),
        row(
            "id.not-the-key",
            "refuses an id that is not the body's key",
            KEY,
            lambda aim: aim.named(aim.other_key),
        ),
        row(
            "id.other-idempotency-key",
            "refuses the Idempotency-Key of another delivery",
            IDEMPOTENCY,
            lambda aim: aim.good.with_header(IDEMPOTENCY_KEY, f'"{aim.other_key}"'),
        ),
        row(
            "encoding.gzip",
            "refuses a compressed body, signed as it arrived",
            ENCODED,
            lambda aim: aim.compressed(signs_plain=False),
        ),
        row(
            "encoding.gzip-of-signed",
            "refuses a compressed body, signed before compression",
            ENCODED,
            lambda aim: aim.compressed(signs_plain=True),
        ),
    )


def _with(name: str, values: tuple[str, ...], aim: Aim) -> Shot:
    return aim.good.with_header(name, *values)


def _with_two(name: str, aim: Aim) -> Shot:
    value = next(value for header, value in aim.good.headers if header == name.encode())
    other = aim.of(UNKNOWN_SECRET).encode() if name == WEBHOOK_SIGNATURE else value
    return aim.good.with_header(name, other, value)


_BEYOND_SECONDS = TOLERANCE_SECONDS + 60
"""Beyond the tolerance even if the clocks differ by almost a minute."""


def times() -> tuple[BadInput, ...]:
    forms: tuple[tuple[str, str, Callable[[int], str]], ...] = (
        ("float", "1674.0", lambda now: f"{now}.0"),
        ("exponent", "1674e0", lambda now: f"{now}e0"),
        ("underscore", "1_674", lambda now: f"{str(now)[0]}_{str(now)[1:]}"),
        ("arabic", "in Arabic digits", _arabic),
        ("leading-zero", "01674", lambda now: f"0{now}"),
        ("plus", "+1674", lambda now: f"+{now}"),
        ("negative", "-1674", lambda now: f"-{now}"),
        ("hexadecimal", "0x68a", hex),
        ("nan", "nan", lambda _now: "nan"),
        ("milliseconds", "in milliseconds", lambda now: f"{now}000"),
        ("twenty-digits", "of twenty digits", lambda _now: "9" * 20),
    )
    return (
        row(
            "time.stale",
            f"refuses a delivery signed {_BEYOND_SECONDS} s ago",
            AGE,
            lambda aim: aim.aged(_BEYOND_SECONDS),
        ),
        row(
            "time.day-old",
            "refuses a delivery signed a day ago",
            AGE,
            lambda aim: aim.aged(86_400),
        ),
        row(
            "time.future",
            f"refuses a delivery signed {_BEYOND_SECONDS} s ahead",
            AGE,
            lambda aim: aim.aged(-_BEYOND_SECONDS),
        ),
        row(
            "time.not-signed",
            "refuses a timestamp other than the signed one",
            MATCH,
            lambda aim: aim.good.with_header(WEBHOOK_TIMESTAMP, str(aim.now - 1)),
        ),
        *(
            row(
                f"time.{name}",
                f"refuses a timestamp {description}",
                DIGITS,
                partial(_timestamped, form),
            )
            for name, description, form in forms
        ),
    )


def _timestamped(form: Callable[[int], str], aim: Aim) -> Shot:
    return aim.timestamped(form(aim.now))


def _arabic(now: int) -> str:
    return "".join(chr(0x0660 + int(digit)) for digit in str(now))


def signatures() -> tuple[BadInput, ...]:
    rows: tuple[tuple[str, str, Check, Make], ...] = (
        ("no-comma", "`v1` alone", FORM, lambda aim: aim.signed("v1")),
        ("no-mac", "`v1,` alone", FORM, lambda aim: aim.signed("v1,")),
        ("not-base64", "invalid base64", FORM, lambda aim: aim.signed("v1,!!not*base64!!")),
        (
            "one-character",
            "base64 of an impossible length",
            FORM,
            lambda aim: aim.signed("v1,A"),
        ),
        ("not-padded", "base64 without padding", FORM, lambda aim: aim.signed(_cut(aim, 1))),
        ("url-safe", "base64url", FORM, Aim.url_safe),
        ("truncated", "half a MAC", FORM, lambda aim: aim.encoded(aim.good_mac[:16])),
        ("empty-mac", "an empty MAC in base64", FORM, lambda aim: aim.signed("v1,====")),
        (
            "hex",
            "the MAC in hexadecimal",
            FORM,
            lambda aim: aim.signed(f"v1,{aim.good_mac.hex()}"),
        ),
        ("three-parts", "`v1,good,b`", FORM, lambda aim: aim.signed(f"{aim.good_signature},b")),
        (
            "commas-between",
            "entries with commas between",
            FORM,
            lambda aim: aim.signed(f"{aim.of(UNKNOWN_SECRET)},{aim.good_signature}"),
        ),
        ("version-2", "a v2 entry alone", FORM, lambda aim: aim.signed(_as(aim, "v2,"))),
        ("version-1a", "a v1a entry alone", FORM, lambda aim: aim.signed(_as(aim, "v1a,"))),
        ("upper-case", "`V1`", FORM, lambda aim: aim.signed(_as(aim, "V1,"))),
        ("no-version", "a MAC without version", FORM, lambda aim: aim.signed(_as(aim, ""))),
        (
            "other-secret",
            "a signature by another secret",
            MATCH,
            lambda aim: aim.signed(aim.of(UNKNOWN_SECRET)),
        ),
        (
            "empty-secret",
            "a signature by an empty secret",
            MATCH,
            lambda aim: aim.signed(aim.of(Secret(b""))),
        ),
        (
            "body-alone",
            "a MAC over the body alone",
            MATCH,
            lambda aim: aim.encoded(hmac.digest(aim.secret.key, aim.delivery.body, "sha256")),
        ),
        (
            "no-key",
            "a hash in place of a MAC",
            MATCH,
            lambda aim: aim.signed(
                "v1," + b64encode(hashlib.sha256(aim.delivery.body).digest()).decode()
            ),
        ),
        ("seventeen", "17 signatures, the last one good", COUNT, lambda aim: aim.many(17)),
        ("hundred", "100 signatures, the last one good", COUNT, lambda aim: aim.many(100)),
    )
    return tuple(
        row(f"signature.{name}", f"refuses {title}", check, make)
        for name, title, check, make in rows
    )


def _as(aim: Aim, prefix: str) -> str:
    return prefix + aim.good_signature.removeprefix("v1,")


def _cut(aim: Aim, count: int) -> str:
    return aim.good_signature[:-count]


_DEEP = 100_000
"""Deep enough to overflow the stack of a recursive parser."""


def bodies() -> tuple[BadInput, ...]:
    """Bodies that were not signed, and signed bodies that are not a delivery."""
    return (
        *(row(f"raw.{name}", f"refuses {title}", MATCH, make) for name, title, make in _raw()),
        *(row(f"body.{name}", f"refuses {title}", BODY, make) for name, title, make in _form()),
        *(
            row(f"body.{name}", f"refuses {title}", BODY, make, Severity.SHOULD)
            for name, title, make in _disagreed()
        ),
        *(
            BadInput(
                Rule(f"body.{name}", f"refuses {title}", Severity.SHOULD, _DATA, _DATA_FIX),
                422,
                make,
            )
            for name, title, make in _not_understood()
        ),
    )


def _raw() -> tuple[tuple[str, str, Make], ...]:
    """Bodies that differ from the signed bytes."""
    return (
        (
            "rewritten",
            "a body serialized again with other white space",
            lambda aim: aim.good.with_body(aim.spaced()),
        ),
        (
            "newline",
            "a body with a newline after it",
            lambda aim: aim.good.with_body(aim.delivery.body + b"\n"),
        ),
        (
            "byte-order-mark",
            "a body with a byte order mark before it",
            lambda aim: aim.good.with_body(b"\xef\xbb\xbf" + aim.delivery.body),
        ),
        ("cut", "a body that was cut", lambda aim: aim.good.with_body(aim.delivery.body[:-1])),
        ("none", "an empty body, signed as another", lambda aim: aim.good.with_body(b"")),
    )


def _form() -> tuple[tuple[str, str, Make], ...]:
    """Signed bodies that are not a delivery."""
    return (
        ("empty", "a signed empty body", lambda aim: aim.saying(b"")),
        ("not-json", "a signed body that is not JSON", lambda aim: aim.saying(b"{")),
        ("not-utf8", "a signed body that is not UTF-8", _not_utf8),
        ("array", "a signed array", lambda aim: aim.saying(b"[]")),
        ("no-type", "a body without type", lambda aim: aim.without("type")),
        ("no-sequence", "a body without sequence", lambda aim: aim.without("sequence")),
        ("no-key", "a body without key", lambda aim: aim.without("key")),
        ("no-data", "a body without data", lambda aim: aim.without("data")),
        ("data-null", "data that is null", lambda aim: aim.with_member("data", None)),
        ("data-list", "data that is an array", lambda aim: aim.with_member("data", [])),
        ("sequence-zero", "a sequence of 0", lambda aim: aim.with_member("sequence", 0)),
        ("sequence-text", "a sequence as text", lambda aim: aim.with_member("sequence", "1")),
    )


def _disagreed() -> tuple[tuple[str, str, Make], ...]:
    """Signed bodies that JSON parsers disagree on."""
    return (
        (
            "member-twice",
            "a member that occurs twice",
            lambda aim: aim.with_raw_member(b'"sequence":2'),
        ),
        ("float", "a number with a fraction", lambda aim: aim.with_raw_member(b'"conform":1.5')),
        ("nan", "NaN", lambda aim: aim.with_raw_member(b'"conform":NaN')),
        (
            "large-integer",
            "an integer beyond 2^53-1",
            lambda aim: aim.with_raw_member(b'"conform":9007199254740993'),
        ),
        ("nul", "NUL in a text", lambda aim: aim.with_raw_member(b'"conform":"\\u0000"')),
        (
            "lone-surrogate",
            "a lone surrogate",
            lambda aim: aim.with_raw_member(b'"conform":"\\ud800"'),
        ),
        (
            "deep",
            f"an array nested {_DEEP:,} deep",
            lambda aim: aim.with_raw_member(b'"conform":' + b"[" * _DEEP + b"]" * _DEEP),
        ),
    )


_DATA = "PROTOCOL.md section 1"
_DATA_FIX = (
    "Check that each member of data is there and has its form before you use it (the kit:"
    " delivery.body.text), and answer 422 where not; answer 4xx, never 500."
)
_LONG_BYTES = 4096
"""More than an index of Postgres takes, in hexadecimal digits, which do not compress to less."""


def _not_understood() -> tuple[tuple[str, str, Make], ...]:
    """Deliveries whose data does not fit their type."""
    return (
        ("data-empty", "data without members", lambda aim: aim.with_member("data", {})),
        ("data-nulls", "data whose members are null", lambda aim: aim.with_data(lambda _: None)),
        ("data-arrays", "data whose members are arrays", lambda aim: aim.with_data(lambda _: [])),
        ("data-long", "data whose texts have 8,192 characters", lambda aim: aim.with_data(_long)),
    )


def _long(value: object) -> object:
    if not isinstance(value, str):
        return value
    return hashlib.shake_256(value.encode()).hexdigest(_LONG_BYTES)


def _not_utf8(aim: Aim) -> Shot:
    return aim.saying(aim.delivery.body.replace(b'"key":"', b'"key":"\xff', 1))


BAD_INPUT: tuple[BadInput, ...] = (*headers(), *times(), *signatures(), *bodies())
