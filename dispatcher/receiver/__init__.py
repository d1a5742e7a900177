"""The receiving half, for a service to import: verify a delivery, apply it once, answer with proof.

`Inbox` loads on first use, so that verifying alone needs no database driver.
"""

from typing import TYPE_CHECKING, Any

from dispatcher.receiver.body import Body, parse_rfc3339
from dispatcher.receiver.errors import Reason, ReceiverError, SecretError, VerificationError
from dispatcher.receiver.middleware import VerifyDeliveries, delivery_of
from dispatcher.receiver.problem import Problem
from dispatcher.receiver.receipt import Answer, Receipt, answer, receipt_is_genuine
from dispatcher.receiver.secret import Secret
from dispatcher.receiver.verify import Delivery, Signed, verify, verify_signature

if TYPE_CHECKING:
    from dispatcher.receiver.inbox import Inbox

__all__ = [
    "Answer",
    "Body",
    "Delivery",
    "Inbox",
    "Problem",
    "Reason",
    "Receipt",
    "ReceiverError",
    "Secret",
    "SecretError",
    "Signed",
    "VerificationError",
    "VerifyDeliveries",
    "answer",
    "delivery_of",
    "parse_rfc3339",
    "receipt_is_genuine",
    "verify",
    "verify_signature",
]


def __getattr__(name: str) -> Any:
    if name == "Inbox":
        # Not at the top: it imports psycopg, which a service that only verifies does not have.
        from dispatcher.receiver import inbox  # noqa: PLC0415 - the optional driver

        return inbox.Inbox
    raise AttributeError(f"module 'dispatcher.receiver' has no attribute {name!r}")
