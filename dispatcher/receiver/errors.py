"""Errors of the receiver kit, by what the caller does next.

    ReceiverError
      VerificationError   the request is not a genuine delivery: answer `status`, apply nothing
      SecretError         a signing secret is unusable: fix the configuration, then start
      Refused             the service does not understand a genuine delivery: answer `problem`
        BadData           `data` lacks a member, or has it in another form
      TakenBack           key and action were rolled back: answer 503, never 2xx
      NoTransaction       the key would commit alone: call `receive` in a transaction
      UnsupportedDriver   the inbox cannot join this transaction: use another driver

A duplicate, a stale sequence and a delivery in progress are not errors but outcomes
(`holdfast.sink.contract.wire.ReceiptOutcome`), which the inbox returns.
"""

from holdfast.sink.contract.compatibility import StrEnum


class Reason(StrEnum):
    """Why a request is not accepted as a delivery; `reason` of the problem answer."""

    MISSING_HEADER = "missing_header"
    """A `webhook-*` header is missing or empty."""
    DUPLICATE_HEADER = "duplicate_header"
    """A header that must occur once occurs twice."""
    BAD_HEADER = "bad_header"
    """A header has characters beyond ASCII."""
    BAD_ID = "bad_id"
    """`webhook-id` is not 1 to 256 of `A-Z a-z 0-9 _ -`."""
    BAD_TIMESTAMP = "bad_timestamp"
    """`webhook-timestamp` is not Unix seconds in ASCII digits."""
    BAD_SIGNATURE = "bad_signature"
    """`webhook-signature` has no well-formed `v1` entry."""
    TOO_MANY_SIGNATURES = "too_many_signatures"
    """`webhook-signature` has more than 16 entries."""
    ENCODED_BODY = "encoded_body"
    """The body is compressed."""
    BAD_BODY = "bad_body"
    """The body is not JSON, or a member is missing or has another form."""
    KEY_MISMATCH = "key_mismatch"
    """`webhook-id`, `idempotency-key` and the body's `key` are not the same."""

    TOO_OLD = "too_old"
    """The timestamp is more than 300 s old. Compare the clocks of both sides."""
    TOO_NEW = "too_new"
    """The timestamp is more than 300 s ahead. Compare the clocks of both sides."""
    NO_MATCH = "no_match"
    """No accepted secret signed it. Compare the secrets of both sides."""


UNAUTHENTICATED = frozenset({Reason.TOO_OLD, Reason.TOO_NEW, Reason.NO_MATCH})
"""Reasons about the sender's identity, answered 401; the others are about form, answered 400."""


class ReceiverError(Exception):
    """Base of all errors that the receiver kit raises."""


class VerificationError(ReceiverError):
    """The request is malformed (400), or not recently signed with an accepted secret (401)."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = 401 if reason in UNAUTHENTICATED else 400


class SecretError(ReceiverError, ValueError):
    """A signing secret is missing or malformed; the message never contains its value."""


class TakenBack(ReceiverError):
    """Key and action were rolled back: answer 503 or nothing, and the sender retries."""


class NoTransaction(ReceiverError):
    """The connection commits each statement and has no open transaction: nothing was written."""


class UnsupportedDriver(ReceiverError, TypeError):
    """The session's driver is not psycopg, so the inbox cannot join its transaction."""
