"""The checks of PROTOCOL.md section 2, as the table of bad input refers to them. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.workbench.conform.bad_input.aim import Aim
from dispatcher.workbench.conform.rule import Rule, Severity
from dispatcher.workbench.conform.shot import Shot

Make = Callable[[Aim], Shot]


@dataclass(frozen=True, slots=True)
class BadInput:
    """A request to refuse, and the status that the document names for it."""

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
MISSING = Check(6, 400, "Refuse the request before any MAC is made.", _HEADERS)
ENCODED = Check(
    7,
    400,
    "Verify the bytes that arrived; switch off decompression for this path.",
    "; RFC 9110 8.4",
)
ID = Check(8, 400, "Match the whole id against [A-Za-z0-9_-]{1,256}.", _SCHEME)
DIGITS = Check(
    9,
    400,
    "Match the header against 0|[1-9][0-9]{0,11} (ASCII digits) before any number is made of it.",
    _HEADERS,
)
AGE = Check(
    10,
    401,
    "Compare the timestamp with your clock, both ways, and refuse more than 300 s.",
    _VERIFYING,
)
COUNT = Check(11, 400, "Count the entries first and refuse more than 16.")
FORM = Check(
    12,
    400,
    "Match each entry against v1,[A-Za-z0-9+/]{43}= and catch what your base64 reader raises;"
    " answer 400, never 500.",
    _HEADERS,
)
MATCH = Check(
    13,
    401,
    "Make the HMAC over id.timestamp.body with the bytes as they arrived, never over JSON that was"
    " read and written again.",
    _SCHEME,
)
BODY = Check(14, 400, "Check the body's form after the signature; answer 400, never 500.")
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
