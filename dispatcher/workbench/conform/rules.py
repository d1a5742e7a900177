"""The rules that take more than one request, or are about good ones. Pure.

Those of bad input, one a request, are in `bad_input.BAD_INPUT`.
"""

from dispatcher.workbench.conform.rule import Rule, Severity

_MUST, _SHOULD = Severity.MUST, Severity.SHOULD

GOOD_APPLIED = Rule(
    "good.applied",
    "a good delivery is accepted",
    _MUST,
    "PROTOCOL.md sections 1 to 3; Standard Webhooks 1.0.0",
    "Check that both sides have the same secret, that the HMAC is over the raw bytes, and that the"
    " contract (--type, --data) is one that this receiver knows.",
)
GOOD_OUTCOME = Rule(
    "good.outcome",
    "the answer says what was done: applied, duplicate, stale",
    _SHOULD,
    "PROTOCOL.md section 3",
    'Answer {"key","outcome","applied_at","receipt"}; until then give --probe, so that what was'
    " applied can be counted.",
)
RAW_SPACED = Rule(
    "raw.spaced",
    "a body with other white space, signed as it is, is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Signature scheme",
    "Take the raw bytes from your framework and verify them; read JSON only afterwards.",
)
DUPLICATE_ONCE = Rule(
    "duplicate.once",
    "an exact duplicate is not applied again",
    _MUST,
    "PROTOCOL.md section 4",
    "Keep the key, unique, in the transaction that applies the action; answer `duplicate`.",
)
DUPLICATE_SAME = Rule(
    "duplicate.same-answer",
    "a duplicate has the first answer's time and idempotency-replayed: true",
    _SHOULD,
    "PROTOCOL.md section 3",
    "Keep applied_at beside the key and answer it again, with idempotency-replayed: true.",
)
COMMIT_FIRST = Rule(
    "commit.before-answer",
    "the action is committed before the answer",
    _MUST,
    "PROTOCOL.md section 3",
    "Answer 2xx after COMMIT has returned. A job on a queue is not the action: keep the key and the"
    " job in one transaction, or answer after the job.",
)
CONCURRENT_ONCE = Rule(
    "concurrent.once",
    "50 duplicates at once are applied once",
    _MUST,
    "PROTOCOL.md section 4",
    "Let a unique constraint decide who is first, in the action's transaction; looking first and"
    " inserting later lets two through.",
)
CONCURRENT_ANSWERS = Rule(
    "concurrent.answers",
    "50 duplicates at once are all answered, with 200 or 409",
    _SHOULD,
    "PROTOCOL.md section 4",
    "Tell the losers `in_progress` (409, retry-after: 1) at once, or let them wait for the first.",
)
CONFLICT_REFUSED = Rule(
    "conflict.refused",
    "the same key with another body is refused with 422",
    _MUST,
    "PROTOCOL.md sections 3 and 4; draft-ietf-httpapi-idempotency-key-header",
    "Keep the SHA-256 of the body beside the key; answer 422 when it differs, and apply nothing.",
)
CONFLICT_FIRST_KEPT = Rule(
    "conflict.first-kept",
    "after a conflict the first body is still the one that is known",
    _MUST,
    "PROTOCOL.md section 4",
    "Never overwrite the hash of a key.",
)
ORDER_GAP = Rule(
    "order.gap",
    "a gap in a subject's sequence is accepted",
    _MUST,
    "PROTOCOL.md section 5",
    "Do not wait for a missing sequence: the sender keeps the order.",
)
ORDER_STALE = Rule(
    "order.stale",
    "a lower sequence after a higher one is not applied",
    _MUST,
    "PROTOCOL.md section 5",
    "Keep the highest sequence of each subject in the action's transaction; answer 200 `stale`"
    " below it. The sequence is the body's, not the time and not the order of arrival.",
)
ORDER_STALE_AGAIN = Rule(
    "order.stale-again",
    "what was stale is stale when it comes again",
    _SHOULD,
    "PROTOCOL.md section 4",
    "Keep the outcome beside the key: `duplicate` would read as if it had been applied.",
)
TIME_WITHIN = Rule(
    "time.within",
    "deliveries signed 240 s ago and 240 s ahead are accepted",
    _SHOULD,
    "PROTOCOL.md section 2, check 10",
    "Allow 300 s both ways, and keep the receiver's clock right.",
)
ROTATION_UNKNOWN_FIRST = Rule(
    "rotation.unknown-first",
    "a good signature after one of an unknown secret is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Webhook headers",
    "Split the header at spaces and compare every entry.",
)
ROTATION_OTHER_SCHEME = Rule(
    "rotation.other-scheme",
    "a good signature beside one of another scheme (v1a) is accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Signature scheme",
    "Pass over entries that are not yours.",
)
ROTATION_SPOILED = Rule(
    "rotation.spoiled-beside",
    "a good signature beside one that cannot be read is accepted",
    _MUST,
    "PROTOCOL.md section 2",
    "Pass over entries that are malformed, as long as one is well-formed.",
)
ROTATION_SIXTEENTH = Rule(
    "rotation.sixteenth",
    "the sixteenth of sixteen signatures is found",
    _MUST,
    "PROTOCOL.md section 2, check 11",
    "Look at 16 entries before you refuse.",
)
ROTATION_SECOND = Rule(
    "rotation.second-secret",
    "deliveries signed by the second secret, and by both, are accepted",
    _MUST,
    "PROTOCOL.md section 2; Standard Webhooks 1.0.0, Webhook headers",
    "Keep a list of accepted secrets and try each.",
)
KEY_FORMS = Rule(
    "key.forms",
    "a bare Idempotency-Key, and none, are accepted",
    _SHOULD,
    "PROTOCOL.md section 2, check 16; RFC 9651",
    "webhook-id is signed and decides; Idempotency-Key may only agree with it.",
)
TRACE_NONE = Rule(
    "trace.none",
    "requests that were refused leave nothing behind",
    _MUST,
    "PROTOCOL.md section 2",
    "Verify before you look at the key or write it: else anybody can use up a key.",
)
SIZE_LARGE = Rule(
    "size.large",
    "a body of 262,144 bytes is accepted",
    _SHOULD,
    "PROTOCOL.md section 1",
    "Raise the framework's limit for this path (many begin with 100 kB).",
)
SIZE_OVER = Rule(
    "size.over",
    "a larger body is refused",
    _MUST,
    "PROTOCOL.md section 2, check 2; RFC 9110 15.5.14",
    "Count the bytes while you read, stop at 262,144, answer 413.",
)
SLOW_OTHERS = Rule(
    "slow.others",
    "a slow sender does not keep others waiting",
    _MUST,
    "PROTOCOL.md section 2, check 3",
    "Read bodies without blocking the process: more workers, or asynchronously.",
)
SLOW_CUT = Rule(
    "slow.cut",
    "a body that never ends is given up",
    _SHOULD,
    "PROTOCOL.md section 2, check 3; RFC 9110 15.5.9",
    "Give the whole body a deadline (10 s), not each read; answer 408 and close.",
)
METHOD = Rule(
    "method.other",
    "a signed PUT and a GET are refused",
    _MUST,
    "PROTOCOL.md section 2, check 1; RFC 9110 15.5.6",
    "Route POST alone; answer 405 with `allow: POST`.",
)
DEADLINE = Rule(
    "deadline.kept",
    "every answer comes within the deadline",
    _MUST,
    "PROTOCOL.md section 3; Standard Webhooks 1.0.0, Request timeouts",
    "Do the action and nothing else before the answer; what is late is sent again.",
)
RECEIPT_GENUINE = Rule(
    "receipt.genuine",
    "receipts, where there are any, prove themselves",
    _MUST,
    "PROTOCOL.md section 6",
    "Sign receipt.{key}.{outcome}.{applied_at} with the three as they stand in the answer, by the"
    " secret that verified the delivery.",
)
WINDOW_ENOUGH = Rule(
    "window.enough",
    "the key window, where it is declared, outlives retries",
    _MUST,
    "PROTOCOL.md section 7",
    "Keep keys for 45 days, or for ever, and say so in holdfast-key-window.",
)
KEYS_KEPT = Rule(
    "keys.kept",
    "a key is still known later",
    _MUST,
    "PROTOCOL.md section 7",
    "Five minutes are the tolerance of a timestamp, not the life of a key: retries run for days."
    " Keep keys for 45 days.",
)
INQUIRY_KNOWN = Rule(
    "inquiry.known",
    "an inquiry, where it is offered, tells what became of a key",
    _MUST,
    "PROTOCOL.md section 8",
    "Answer the first outcome with its time, receipt and body_sha256, or do not offer it.",
)
INQUIRY_GUARDED = Rule(
    "inquiry.guarded",
    "an inquiry that is not signed is refused",
    _MUST,
    "PROTOCOL.md section 8",
    "Verify the signature over the empty body, and that the path names the key of webhook-id.",
)
INQUIRY_UNKNOWN = Rule(
    "inquiry.unknown",
    "an inquiry for a key that nobody sent is answered 404",
    _MUST,
    "PROTOCOL.md section 8",
    "Answer 404 unknown_key: 200 would let the sender believe that it was delivered.",
)
