"""Checks an answer to a key inquiry: only a proven receipt or the protocol's 404 counts.

Section 8 of `docs/receivers/PROTOCOL.md`.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.dispatcher.outbound.receipt import proven_receipt
from holdfast.dispatcher.outbound.retry_after import parse_retry_after
from holdfast.dispatcher.shared.outcome import NoAnswer, Refused, Response
from holdfast.dispatcher.shared.text import one_line
from holdfast.dispatcher.shared.value import value
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import ReceiptOutcome

Answer = Response | NoAnswer | Refused


@value
class ReceiverRecord:
    """A receiver's record of a key: `applied` or `stale`, and its time by the receiver's clock.

    `body_sha256` is None where the receiver does not send it.
    """

    key: str
    outcome: ReceiptOutcome
    applied_at: str
    body_sha256: bytes | None = None
    subject: str | None = None
    sequence: int | None = None


WAIT_SECONDS_MAX = 10.0
"""The longest Retry-After that a comparison waits for."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINAL = frozenset({ReceiptOutcome.APPLIED, ReceiptOutcome.STALE})


class InquiryError(Exception):
    """The inquiry failed, or its answer does not follow the protocol."""


def may_pass(answer: Answer) -> bool:
    """Return whether the same inquiry may succeed a moment later."""
    if isinstance(answer, Response):
        return answer.status == 429 or answer.status >= 500
    return isinstance(answer, NoAnswer)


def asked_seconds(answer: Answer) -> float:
    """Return the seconds to wait by Retry-After: 0 without it, at most `WAIT_SECONDS_MAX`."""
    if not isinstance(answer, Response):
        return 0.0
    return min(parse_retry_after(answer.retry_after, datetime.now(UTC)) or 0.0, WAIT_SECONDS_MAX)


def judged(answer: Answer, key: str, secrets: Sequence[Secret]) -> ReceiverRecord | None:
    """Return the receiver's record of `key`, or None when it answers that it has none.

    Raises `InquiryError` for any other answer. A 404 counts only with the reason `unknown_key`: a
    wrong URL would otherwise report every key as lost.
    """
    if not isinstance(answer, Response):
        raise InquiryError(answer.error)
    content = _content(answer.body)
    if answer.status == 404 and content.get("reason") == "unknown_key":
        return None
    if answer.status != 200:
        raise InquiryError(f"it answered {answer.status}{_reason(content)}")
    if proven_receipt(answer.body, key, secrets) is None:
        raise InquiryError("its answer has no receipt that the endpoint's secret made for this key")
    outcome = ReceiptOutcome(content["outcome"])
    if outcome not in _FINAL:
        raise InquiryError(f"it answered with the outcome {outcome.value}, which is not final")
    return ReceiverRecord(key, outcome, content["applied_at"], _sha256(content.get("body_sha256")))


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode())
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _reason(content: dict[str, Any]) -> str:
    reason = content.get("reason")
    return f" ({one_line(reason)})" if isinstance(reason, str) else ""


def _sha256(text: object) -> bytes | None:
    return bytes.fromhex(text) if isinstance(text, str) and _SHA256.fullmatch(text) else None
