"""The receiver kit for services: verify a delivery, apply it once, answer with a signed receipt.

`Inbox` and `SqlAlchemyInbox` load on first use, so that verifying needs no database driver. Import
`dispatcher.receiver.fastapi`, `.wsgi` and `.ddl` by their own names.
"""

from typing import TYPE_CHECKING, Any

from dispatcher.receiver.errors import (
    Reason,
    ReceiverError,
    SecretError,
    TakenBack,
    UnsupportedDriver,
    VerificationError,
)
from dispatcher.receiver.handling import handle, handle_inquiry
from dispatcher.receiver.message.body import Body, parse_rfc3339
from dispatcher.receiver.message.problem import BadData, Problem, Refused, unknown_key
from dispatcher.receiver.message.receipt import (
    Answer,
    Receipt,
    answer,
    answer_inquiry,
    receipt_is_genuine,
)
from dispatcher.receiver.message.secret import Secret
from dispatcher.receiver.message.verify import (
    Delivery,
    Inquiry,
    Signed,
    verify,
    verify_inquiry,
    verify_signature,
)
from dispatcher.receiver.message.window import KEY_WINDOW_DEFAULT, PRUNE_MAX
from dispatcher.receiver.middleware import VerifyDeliveries, delivery_of, inquiry_of

if TYPE_CHECKING:
    from dispatcher.receiver.inbox import Inbox
    from dispatcher.receiver.sqlalchemy_inbox import SqlAlchemyInbox

__all__ = [
    "KEY_WINDOW_DEFAULT",
    "PRUNE_MAX",
    "Answer",
    "BadData",
    "Body",
    "Delivery",
    "Inbox",
    "Inquiry",
    "Problem",
    "Reason",
    "Receipt",
    "ReceiverError",
    "Refused",
    "Secret",
    "SecretError",
    "Signed",
    "SqlAlchemyInbox",
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
    match name:
        case "Inbox":
            from dispatcher.receiver import inbox  # noqa: PLC0415 - the optional driver

            return inbox.Inbox
        case "SqlAlchemyInbox":
            from dispatcher.receiver import sqlalchemy_inbox  # noqa: PLC0415 - the optional driver

            return sqlalchemy_inbox.SqlAlchemyInbox
    raise AttributeError(f"module 'dispatcher.receiver' has no attribute {name!r}")
