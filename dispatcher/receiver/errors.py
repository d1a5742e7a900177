"""What can go wrong in the receiving half, named for what the caller does next.

    ReceiverError
      VerificationError   the request is not a delivery of ours: answer `status`, apply nothing
      SecretError         a signing secret cannot be used: correct the configuration, then start
      TakenBack           the block around the action failed: answer 503, never 2xx
      UnsupportedDriver   the inbox cannot join this transaction: use another driver or isolation

A duplicate, a stale sequence or a delivery that is still running are no errors: they are outcomes
(`sink.contract.wire.ReceiptOutcome`) and leave the inbox as values.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a request was not accepted as a delivery; the code is part of the problem answer."""

    MISSING_HEADER = "missing_header"
    DUPLICATE_HEADER = "duplicate_header"
    BAD_HEADER = "bad_header"
    BAD_ID = "bad_id"
    BAD_TIMESTAMP = "bad_timestamp"
    BAD_SIGNATURE = "bad_signature"
    TOO_MANY_SIGNATURES = "too_many_signatures"
    ENCODED_BODY = "encoded_body"
    BAD_BODY = "bad_body"
    KEY_MISMATCH = "key_mismatch"

    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    NO_MATCH = "no_match"


UNAUTHENTICATED = frozenset({Reason.TOO_OLD, Reason.TOO_NEW, Reason.NO_MATCH})
"""The reasons that say who may be asking, not how the request is written: 401, the rest 400."""


class ReceiverError(Exception):
    """Base of every error that the receiving half raises on purpose."""


class VerificationError(ReceiverError):
    """The request is malformed (400), or nobody who knows the secret sent it just now (401)."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = 401 if reason in UNAUTHENTICATED else 400


class SecretError(ReceiverError, ValueError):
    """A signing secret is missing or malformed; the message never shows what was given."""


class TakenBack(ReceiverError):
    """Key and action were not kept: answer nothing or 503, and the delivery comes again."""


class UnsupportedDriver(ReceiverError, TypeError):
    """The session's driver or isolation level cannot keep key and action in one transaction."""
