"""The receiver kit for services: verify a delivery, apply it once, answer with a signed receipt.

`Inbox` loads on first use, so that verifying needs no database driver. Import
`holdfast.receiver.fastapi`, `.wsgi`, `.sqlalchemy_inbox` and `.ddl` by their own names.
"""

from typing import TYPE_CHECKING, Any

from holdfast.receiver.errors import (
    NoTransaction,
    Reason,
    ReceiverError,
    SecretError,
    TakenBack,
    UnsupportedDriver,
    VerificationError,
)
from holdfast.receiver.handling import handle, handle_inquiry
from holdfast.receiver.message.body import Body, parse_rfc3339
from holdfast.receiver.message.problem import BadData, Problem, Refused, unknown_key
from holdfast.receiver.message.receipt import (
    Answer,
    Receipt,
    answer,
    answer_inquiry,
    receipt_is_genuine,
)
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import (
    Delivery,
    Inquiry,
    Signed,
    verify,
    verify_inquiry,
    verify_signature,
)
from holdfast.receiver.message.window import KEY_WINDOW_DEFAULT, PRUNE_MAX
from holdfast.receiver.middleware import VerifyDeliveries, delivery_of, inquiry_of

if TYPE_CHECKING:
    from holdfast.receiver.inbox import Inbox

__all__ = [
    "KEY_WINDOW_DEFAULT",
    "PRUNE_MAX",
    "Answer",
    "BadData",
    "Body",
    "Delivery",
    "Inbox",
    "Inquiry",
    "NoTransaction",
    "Problem",
    "Reason",
    "Receipt",
    "ReceiverError",
    "Refused",
    "Secret",
    "SecretError",
    "Signed",
    "TakenBack",
    "UnsupportedDriver",
    "VerificationError",
    "VerifyDeliveries",
    "answer",
    "answer_inquiry",
    "delivery_of",
    "handle",
    "handle_inquiry",
    "inquiry_of",
    "parse_rfc3339",
    "receipt_is_genuine",
    "unknown_key",
    "verify",
    "verify_inquiry",
    "verify_signature",
]


def __getattr__(name: str) -> Any:
    # Imported lazily: a service that only verifies has no database driver.
    if name == "Inbox":
        from holdfast.receiver import inbox  # noqa: PLC0415 - the optional driver

        return inbox.Inbox
    raise AttributeError(f"module 'holdfast.receiver' has no attribute {name!r}")
