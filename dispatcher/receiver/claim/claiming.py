"""What becomes of a delivery, decided once for all four drivers. No I/O.

A driver runs the steps: it is given the name of a statement and its parameters, and sends back the
first row. The primary key of `inbox` makes an action happen once, and the sequence in
`inbox_subject` keeps a late delivery from undoing a newer one; both hold without any lock. The
advisory locks only keep a duplicate from *waiting* for the transaction that is at work on the same
key or subject: it is told `in_progress` at once instead of holding a connection. They are tried,
never waited for, so no deadlock comes from here.

A new key is one statement, which sees what was committed before it began. Where it keeps no key,
the key is looked up: known, or at work elsewhere. A fence that was moved while it ran is noticed
when the claim would move it. Under an isolation level above READ COMMITTED such a race ends as a
serialization failure instead, never as a second action.
"""

import hashlib
import json
import re
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dispatcher.receiver.claim.statements import statement
from dispatcher.receiver.errors import TakenBack
from dispatcher.receiver.message.receipt import Receipt
from dispatcher.receiver.message.verify import Delivery
from sink.contract.failpoints import failpoint
from sink.contract.wire import ReceiptOutcome

Row = Sequence[Any]
"""Of `claim`: outcome, microseconds since 1970, whether the fence moved; of `find`: SHA-256 in hex,
outcome, result as JSON text in hex, microseconds since 1970."""
Step = tuple[str, dict[str, Any]]
Steps = Generator[Step, Row | None, Receipt]

STATEMENTS = ("claim", "find", "keep_result", "mark_stale", "prune")


def composed(schema: str) -> dict[str, str]:
    """Return every statement of the inbox for `schema`."""
    return {name: statement(name, schema) for name in STATEMENTS}


def claim(schema: str, key_window: str, delivery: Delivery, subject: str) -> Steps:
    """Claim the delivery's key, or learn what became of it before."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject is a text, not {type(subject).__name__}")
    subject = str.__str__(subject)  # drivers have their own ideas of an Enum that is a text
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
        # A higher sequence of the subject was committed after the claim began.
        yield "mark_stale", {"key": key}
        outcome = ReceiptOutcome.STALE
    failpoint("R2")
    return Receipt(key, outcome, received_at, key_window=key_window)


def of_inquiry(key: str, row: Row | None, key_window: str) -> Receipt | None:
    """Return what the first delivery of `key` was answered, or None for a key that is not known."""
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
    """Whether the service has set a result while it applied."""
    return receipt.outcome is ReceiptOutcome.APPLIED and receipt.result is not None


def result_of(receipt: Receipt) -> dict[str, Any]:
    """Return the parameters of `keep_result`.

    Raises `TypeError` for a result that JSON has no form for, and `ValueError` for one that the
    database's JSON does not take: NaN, infinities, NUL, lone surrogates, no end of nesting.
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
    """Raise `TakenBack` where the service's block ended the transaction that it was in."""
    if not open_:
        raise TakenBack(
            "the block rolled back, committed, closed or broke the transaction that the key is in:"
            " raise instead, and commit after the block"
        )


def passed_apply(receipt: Receipt) -> None:
    """Pass the point at which everything is written and nothing is committed."""
    if receipt.outcome is ReceiptOutcome.APPLIED:
        failpoint("R3")


def _of_known(key: str, row: Row, body_sha256: bytes, key_window: str) -> Receipt:
    sha256, outcome, result, microseconds = _readable(row)
    if sha256 != body_sha256.hex():
        return Receipt(key, ReceiptOutcome.CONFLICT, key_window=key_window)
    first = ReceiptOutcome(outcome)
    # What was stale the first time was never applied: its receipt must not read as if it were.
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
    """Return what in `result`, whose JSON is `text`, no `jsonb` holds; empty for nothing."""
    if not _ESCAPED.search(text):
        return ""
    # That was a NUL, half a pair of surrogates, or a backslash that somebody wrote.
    plain = json.dumps(result, ensure_ascii=False)
    if _NUL.search(plain):
        return "it holds a NUL character"
    return "it holds a lone surrogate" if _SURROGATE.search(plain) else ""


def _moment(microseconds: int) -> datetime:
    # As a number, because sessions write times in their own style and zone.
    return _EPOCH + timedelta(microseconds=microseconds)


def _loaded(text: str | None) -> Any:
    # As text, because each service may have taught its driver to read JSON in its own way; in hex,
    # because a session's encoding may not have all of its characters.
    return None if text is None else json.loads(bytes.fromhex(text))


def _readable(row: Row) -> Row:
    # Where a session has no encoding (SQL_ASCII), the driver reads texts as bytes.
    return [value.decode("ascii") if isinstance(value, bytes) else value for value in row]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPED = re.compile(r"\\u(?:0000|d[89a-f])")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REFUSED = (
    "the result of {key} cannot be kept as JSON: {why}. The delivery was taken back, so nothing is"
    " half done; set a result of texts, numbers, lists and objects"
)
