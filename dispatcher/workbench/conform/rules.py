"""The rules that receivers are graded by, and the grades. Pure.

These rules are about good requests, or need several. The rules about bad input, one request each,
are in `bad_input.BAD_INPUT`.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    MUST = "must"
    """A receiver that breaks it can move money twice, lose it, or move it for an attacker."""
    SHOULD = "should"
    """A receiver works without it and is safer with it."""


class Grade(StrEnum):
    PASS = "pass"  # noqa: S105 - a grade, no password
    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Rule:
    """One behaviour of a receiver, its source, and how to fix a receiver that breaks it."""

    id: str
    """`group.name`; stable, so that reports can be compared over time."""
    title: str
    severity: Severity
    source: str
    fix: str

    def passed(self, detail: str) -> "Verdict":
        return Verdict(self, Grade.PASS, detail)

    def failed(self, detail: str) -> "Verdict":
        return Verdict(self, Grade.FAIL, detail)

    def warned(self, detail: str) -> "Verdict":
        """Warn: a broken `should`, or a rule that cannot be graded from outside."""
        return Verdict(self, Grade.WARN, detail)

    def violated(self, detail: str) -> "Verdict":
        """Fail if the rule is a `must`, else warn."""
        return self.failed(detail) if self.severity is Severity.MUST else self.warned(detail)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of one rule. `detail` may contain text of the receiver: escape it for display."""

    rule: Rule
    grade: Grade
    detail: str


_MUST, _SHOULD = Severity.MUST, Severity.SHOULD

GOOD_APPLIED = Rule(
    "good.applied",
    "a good delivery is accepted",
    _MUST,
    "PROTOCOL.md sections 1 to 3; Standard Webhooks 1.0.0",
    "Check that both sides have the same secret, that the HMAC is over the raw bytes, and that the"
    " receiver knows the contract (--type, --data).",
)
GOOD_OUTCOME = Rule(
    "good.outcome",
    "the answer reports the outcome: applied, duplicate or stale",
    _SHOULD,
    "PROTOCOL.md section 3",
    'Answer {"key","outcome","applied_at","receipt"}; until then pass --probe, so that applied'
    " deliveries can be counted.",
)
RAW_SPACED = Rule(
    "raw.spaced",
    "a body with unusual white space, correctly signed, is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Signature scheme",
    "Get the raw bytes from your framework and verify them; parse JSON only afterwards.",
)
DUPLICATE_ONCE = Rule(
    "duplicate.once",
    "an exact duplicate is not applied again",
    _MUST,
    "PROTOCOL.md section 4",
    "Store the key under a unique constraint, in the transaction that applies the action; answer"
    " `duplicate`.",
)
DUPLICATE_SAME = Rule(
    "duplicate.same-answer",
    "a duplicate has the first answer's time and idempotency-replayed: true",
    _SHOULD,
    "PROTOCOL.md section 3",
    "Store applied_at with the key and repeat it in the answer, with idempotency-replayed: true.",
)
COMMIT_FIRST = Rule(
    "commit.before-answer",
    "the action is committed before the answer",
    _MUST,
    "PROTOCOL.md section 3",
    "Answer 2xx only after COMMIT returns. A queued job is not the action: store the key and the"
    " job in one transaction, or answer after the job.",
)
CONCURRENT_ONCE = Rule(
    "concurrent.once",
    "50 concurrent duplicates are applied once",
    _MUST,
    "PROTOCOL.md section 4",
    "Let a unique constraint decide which is first, in the action's transaction; a SELECT before"
    " the INSERT lets two through.",
)
CONCURRENT_ANSWERS = Rule(
    "concurrent.answers",
    "50 concurrent duplicates are all answered, with 200 or 409",
    _SHOULD,
    "PROTOCOL.md section 4",
    "Answer the others `in_progress` (409, retry-after: 1), or let them wait for the first.",
)
CONFLICT_REFUSED = Rule(
    "conflict.refused",
    "the same key with another body is refused with 422",
    _MUST,
    "PROTOCOL.md sections 3 and 4; draft-ietf-httpapi-idempotency-key-header",
    "Store the SHA-256 of the body with the key; if it differs, answer 422 and apply nothing.",
)
CONFLICT_FIRST_KEPT = Rule(
    "conflict.first-kept",
    "after a conflict the first body remains the known one",
    _MUST,
    "PROTOCOL.md section 4",
    "Never overwrite the hash of a key.",
)
ORDER_GAP = Rule(
    "order.gap",
    "a gap in a subject's sequence is accepted",
    _MUST,
    "PROTOCOL.md section 5",
    "Do not wait for a missing sequence: the sender ensures the order.",
)
ORDER_STALE = Rule(
    "order.stale",
    "a lower sequence after a higher one is not applied",
    _MUST,
    "PROTOCOL.md section 5",
    "Store the highest sequence of each subject in the action's transaction; answer 200 `stale`"
    " below it. Use the sequence of the body, not the time and not the order of arrival.",
)
ORDER_STALE_AGAIN = Rule(
    "order.stale-again",
    "a repeat of a stale delivery is stale again",
    _SHOULD,
    "PROTOCOL.md section 4",
    "Store the outcome with the key: `duplicate` would mean that it was applied.",
)
TIME_WITHIN = Rule(
    "time.within",
    "deliveries signed 240 s in the past and in the future are accepted",
    _SHOULD,
    "PROTOCOL.md section 2, check 10",
    "Allow 300 s in both directions, and synchronize the receiver's clock.",
)
ROTATION_UNKNOWN_FIRST = Rule(
    "rotation.unknown-first",
    "a good signature after one by an unknown secret is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Webhook headers",
    "Split the header at spaces and compare every entry.",
)
ROTATION_OTHER_SCHEME = Rule(
    "rotation.other-scheme",
    "a good signature beside one of another scheme (v1a) is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Signature scheme",
    "Skip entries of other schemes.",
)
ROTATION_SPOILED = Rule(
    "rotation.spoiled-beside",
    "a good signature beside a malformed one is accepted",
    _MUST,
    "PROTOCOL.md section 2",
    "Skip malformed entries, if at least one is well-formed.",
)
ROTATION_SIXTEENTH = Rule(
    "rotation.sixteenth",
    "the sixteenth of sixteen signatures is found",
    _MUST,
    "PROTOCOL.md section 2, check 11",
    "Compare up to 16 entries before you refuse.",
)
ROTATION_SECOND = Rule(
    "rotation.second-secret",
    "deliveries signed with the second secret, and with both, are accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Webhook headers",
    "Keep a list of accepted secrets and try each.",
)
KEY_FORMS = Rule(
    "key.forms",
    "an unquoted Idempotency-Key, and a missing one, are accepted",
    _SHOULD,
    "PROTOCOL.md section 2, check 16; RFC 9651",
    "webhook-id is signed and is the key; Idempotency-Key, if present, must equal it.",
)
TRACE_NONE = Rule(
    "trace.none",
    "refused requests leave no trace",
    _MUST,
    "PROTOCOL.md section 2",
    "Verify before you look up or store the key; otherwise anyone can consume a key.",
)
SIZE_LARGE = Rule(
    "size.large",
    "a body of 262,144 bytes is accepted",
    _SHOULD,
    "PROTOCOL.md section 1",
    "Raise the framework's limit for this path (a common default is 100 kB).",
)
SIZE_OVER = Rule(
    "size.over",
    "a larger body is refused",
    _MUST,
    "PROTOCOL.md section 2, check 2; RFC 9110 15.5.14",
    "Count the bytes while reading, stop after 262,144, and answer 413.",
)
SLOW_OTHERS = Rule(
    "slow.others",
    "a slow sender does not block others",
    _MUST,
    "PROTOCOL.md section 2, check 3",
    "Read bodies without blocking the process: use more workers or asynchronous I/O.",
)
SLOW_CUT = Rule(
    "slow.cut",
    "a body that never ends is abandoned",
    _SHOULD,
    "PROTOCOL.md section 2, check 3; RFC 9110 15.5.9",
    "Set a deadline (10 s) for the whole body, not for each read; answer 408 and close.",
)
METHOD = Rule(
    "method.other",
    "a signed PUT and a GET are refused",
    _MUST,
    "PROTOCOL.md section 2, check 1; RFC 9110 15.5.6",
    "Route only POST; otherwise answer 405 with `allow: POST`.",
)
DEADLINE = Rule(
    "deadline.kept",
    "every answer arrives within the deadline",
    _MUST,
    "PROTOCOL.md section 3; Standard Webhooks 1.0.0, Request timeouts",
    "Do only the action before the answer; the sender retries after the deadline.",
)
RECEIPT_GENUINE = Rule(
    "receipt.genuine",
    "receipts, if present, are genuine",
    _MUST,
    "PROTOCOL.md section 6",
    "Sign receipt.{key}.{outcome}.{applied_at}, with the values exactly as in the answer, with the"
    " secret that verified the delivery.",
)
WINDOW_ENOUGH = Rule(
    "window.enough",
    "the key window, if declared, is longer than the retries",
    _MUST,
    "PROTOCOL.md section 7",
    "Keep keys for 45 days or forever, and declare that in holdfast-key-window.",
)
KEYS_KEPT = Rule(
    "keys.kept",
    "a key is still known later",
    _MUST,
    "PROTOCOL.md section 7",
    "Five minutes is the tolerance of a timestamp, not the lifetime of a key: retries run for days."
    " Keep keys for 45 days.",
)
INQUIRY_KNOWN = Rule(
    "inquiry.known",
    "an inquiry, if offered, returns the outcome of a key",
    _MUST,
    "PROTOCOL.md section 8",
    "Answer the first outcome with its time, receipt and body_sha256, or do not offer it.",
)
INQUIRY_GUARDED = Rule(
    "inquiry.guarded",
    "an unsigned inquiry is refused",
    _MUST,
    "PROTOCOL.md section 8",
    "Verify the signature over the empty body, and that the key in the path equals webhook-id.",
)
INQUIRY_UNKNOWN = Rule(
    "inquiry.unknown",
    "an inquiry for a key that was never sent is answered 404",
    _MUST,
    "PROTOCOL.md section 8",
    "Answer 404 unknown_key: the sender would read 200 as delivered.",
)
