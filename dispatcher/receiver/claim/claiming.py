"""Decides the outcome of a delivery, for all four drivers. No I/O.

A driver runs the steps: it gets the name of a statement and its parameters, and sends back the
first row. The primary key of `inbox` ensures that an action happens once, and the sequence in
`inbox_subject` that a late delivery does not undo a newer one. Neither depends on a lock. Advisory
locks only spare a duplicate from waiting for the transaction that works on the same key or subject:
it gets `in_progress` at once and does not occupy a connection. They are tried, never waited for, so
they cannot cause a deadlock.

A new key takes one statement, which sees what was committed before it began. If it inserts no key,
the key is looked up: it is known, or in progress elsewhere. If the subject's sequence advanced
meanwhile, the claim notices when it updates it. Above READ COMMITTED such a race ends as a
serialization failure, never as a second action.
"""

import hashlib
import json
import re
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.receiver.claim.statements import statement
from holdfast.receiver.errors import TakenBack
from holdfast.receiver.message.receipt import Receipt
from holdfast.receiver.message.verify import Delivery
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.wire import ReceiptOutcome

Row = Sequence[Any]
"""From `claim`: outcome, microseconds since 1970, whether the subject's sequence advanced. From
`find`: SHA-256 in hex, outcome, result as JSON text in hex, microseconds since 1970."""
Step = tuple[str, dict[str, Any]]
Steps = Generator[Step, Row | None, Receipt]

STATEMENTS = ("claim", "find", "keep_result", "mark_stale", "prune")


def composed(schema: str) -> dict[str, str]:
    """Return every statement of the inbox for `schema`."""
    return {name: statement(name, schema) for name in STATEMENTS}


def claim(schema: str, key_window: str, delivery: Delivery, subject: str) -> Steps:
    """Claim the delivery's key, or return its earlier outcome."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject must be a str, not {type(subject).__name__}")
    subject = str.__str__(subject)  # drivers differ in how they adapt a StrEnum
    key = delivery.key
    body_sha256 = hashlib.sha256(delivery.raw).digest()
    row = yield (
        "claim",
        {
            "schema": schema,
            "key": key,
            "subject": subject,
            "sequence": delivery.body.sequence,
            "body_sha256": body_sha256,
        },
    )
    if row is None:
        row = yield "find", {"key": key}
        if row is None:
            return Receipt(key, ReceiptOutcome.IN_PROGRESS, key_window=key_window)
        return _of_known(key, row, body_sha256, key_window)
    word, microseconds, fenced = _readable(row)
    outcome, received_at = ReceiptOutcome(word), _moment(microseconds)
    if outcome is ReceiptOutcome.APPLIED and not fenced:
        # A higher sequence of the subject committed after the claim began.
        yield "mark_stale", {"key": key}
        outcome = ReceiptOutcome.STALE
    failpoint("R2")
    return Receipt(key, outcome, received_at, key_window=key_window)


def of_inquiry(key: str, row: Row | None, key_window: str) -> Receipt | None:
    """Return the first outcome of `key`, or None if it is unknown."""
    if row is None:
        return None
    sha256, outcome, result, microseconds = _readable(row)
    return Receipt(
        key,
        ReceiptOutcome(outcome),
        _moment(microseconds),
        result=_loaded(result),
        key_window=key_window,
        body_sha256=bytes.fromhex(sha256),
    )


def has_new_result(receipt: Receipt) -> bool:
    """Return whether the service set a result in its block."""
    return receipt.outcome is ReceiptOutcome.APPLIED and receipt.result is not None


def result_of(receipt: Receipt) -> dict[str, Any]:
    """Return the parameters of `keep_result`.

    Raises `TypeError` for a result that JSON cannot represent, and `ValueError` for one that
    `jsonb` does not accept: NaN, infinities, NUL, lone surrogates, circular or too deep nesting.
    """
    try:
        text = json.dumps(receipt.result, allow_nan=False)
        why = _unfit(receipt.result, text)
    except TypeError as error:
        raise TypeError(_REFUSED.format(key=receipt.key, why=error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(_REFUSED.format(key=receipt.key, why=error)) from error
    if why:
        raise ValueError(_REFUSED.format(key=receipt.key, why=why))
    return {"key": receipt.key, "result": text}


def must_be_open(*, open_: bool) -> None:
    """Raise `TakenBack` if the service's block ended its transaction."""
    if not open_:
        raise TakenBack(
            "the block rolled back, committed, closed or failed the transaction of the key. Raise"
            " in the block to roll back, and commit after it"
        )


def passed_apply(receipt: Receipt) -> None:
    """Mark the point where everything is written and nothing is committed."""
    if receipt.outcome is ReceiptOutcome.APPLIED:
        failpoint("R3")


def _of_known(key: str, row: Row, body_sha256: bytes, key_window: str) -> Receipt:
    sha256, outcome, result, microseconds = _readable(row)
    if sha256 != body_sha256.hex():
        return Receipt(key, ReceiptOutcome.CONFLICT, key_window=key_window)
    first = ReceiptOutcome(outcome)
    # A stale delivery was never applied, so a repeat must not be answered `duplicate`.
    now = ReceiptOutcome.STALE if first is ReceiptOutcome.STALE else ReceiptOutcome.DUPLICATE
    return Receipt(
        key,
        now,
        _moment(microseconds),
        replayed=True,
        result=_loaded(result),
        key_window=key_window,
    )


def _unfit(result: Any, text: str) -> str:
    """Return why `jsonb` cannot store `result`, whose JSON is `text`; empty if it can."""
    if not _ESCAPED.search(text):
        return ""
    # The match is a NUL, a surrogate, or a literal backslash.
    plain = json.dumps(result, ensure_ascii=False)
    if _NUL.search(plain):
        return "it contains a NUL character"
    return "it contains a lone surrogate" if _SURROGATE.search(plain) else ""


def _moment(microseconds: int) -> datetime:
    # A number, because the text of a time depends on the session's DateStyle and time zone.
    return _EPOCH + timedelta(microseconds=microseconds)


def _loaded(text: str | None) -> Any:
    # Text, because a service may have set its own JSON loader in the driver; hex, because the
    # session's encoding may lack some characters.
    return None if text is None else json.loads(bytes.fromhex(text))


def _readable(row: Row) -> Row:
    # With client_encoding SQL_ASCII the driver returns text as bytes.
    return [value.decode("ascii") if isinstance(value, bytes) else value for value in row]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPED = re.compile(r"\\u(?:0000|d[89a-f])")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REFUSED = (
    "the result of {key} cannot be stored as JSON: {why}. The delivery was rolled back completely;"
    " set a result of texts, numbers, lists and objects"
)
