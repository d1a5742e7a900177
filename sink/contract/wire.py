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
    """The key was new, and the action is committed."""
    DUPLICATE = "duplicate"
    """This key with this body was applied before. Nothing is done again."""
    STALE = "stale"
    """The same or a higher sequence of the subject came before. It is recorded, not applied."""
    IN_PROGRESS = "in_progress"
    """Another request is at work on this key or subject. The sender asks again soon."""
    CONFLICT = "conflict"
    """The key is known with other bytes. Nothing was done, and a person must look."""


RECEIPT_STATUS = {
    ReceiptOutcome.APPLIED: 200,
    ReceiptOutcome.DUPLICATE: 200,
    ReceiptOutcome.STALE: 200,
    ReceiptOutcome.IN_PROGRESS: 409,
    ReceiptOutcome.CONFLICT: 422,
}
