"""Header names and statuses on the wire, for the dispatcher and the receiver.

Standard Webhooks 1.0.0 for `webhook-*`; draft-ietf-httpapi-idempotency-key-header for the key (a
structured-field string, RFC 9651, so the quotes belong to the value).
"""

from holdfast.sink.contract.compatibility import StrEnum

WEBHOOK_ID = "webhook-id"
WEBHOOK_TIMESTAMP = "webhook-timestamp"
WEBHOOK_SIGNATURE = "webhook-signature"
IDEMPOTENCY_KEY = "idempotency-key"
TRACEPARENT = "traceparent"
CONTENT_TYPE = "application/json"

TOLERANCE_SECONDS = 300
"""How far a delivery's timestamp may be from the receiver's clock, in either direction."""

SIGNATURES_MAX = 16
"""Maximum number of signatures in one header that a receiver checks."""

KEY_WINDOW = "holdfast-key-window"
"""The answer's header: seconds for which the receiver keeps a key, or `KEY_WINDOW_FOREVER`."""

KEY_WINDOW_FOREVER = "forever"

INQUIRY_PATH = "/holdfast/keys/"
"""Default prefix of the path of a key inquiry; the key follows."""


class ReceiptOutcome(StrEnum):
    """What the receiver did with a delivery; `RECEIPT_STATUS` has the status that carries it."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    IN_PROGRESS = "in_progress"
    CONFLICT = "conflict"


RECEIPT_STATUS = {
    ReceiptOutcome.APPLIED: 200,
    ReceiptOutcome.DUPLICATE: 200,
    ReceiptOutcome.STALE: 200,
    ReceiptOutcome.IN_PROGRESS: 409,
    ReceiptOutcome.CONFLICT: 422,
}
