"""Send one delivery through the dispatcher's transport and classify the result as it does.

The database is not touched: no attempt is recorded and no lane advances.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.dispatcher.outbound.receipt import proven_receipt
from holdfast.dispatcher.outbound.request import Composer, Headers, Request
from holdfast.dispatcher.outbound.retry_after import parse_retry_after
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.engines import open_transport
from holdfast.dispatcher.outbound.transport.transport import EngineName, Progress
from holdfast.dispatcher.shared.outcome import CONFLICT, Answer, Response, classify
from holdfast.dispatcher.shared.text import hide, storable
from holdfast.dispatcher.workbench.listen.sample import SampleDelivery
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.states import Outcome
from holdfast.sink.contract.wire import WEBHOOK_SIGNATURE

NEXT = {
    Outcome.DELIVERED: "the lane advances to the subject's next decision",
    Outcome.FAILED: "retried on the endpoint's schedule with the same key",
    Outcome.THROTTLED: "retried with the same key after the receiver's Retry-After",
    Outcome.UNKNOWN: "the receiver may have acted: retried with the same key",
    Outcome.REJECTED: "a dead letter at once: a person decides",
    Outcome.REFUSED: "the dispatcher's own limits stopped it before sending; a dead letter at once",
    Outcome.GONE: "the endpoint is disabled; its decisions wait",
}
GENUINE, NOT_GENUINE, NONE = "genuine", "not genuine", "none"
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
SUBJECT_ID = 0
"""Not the id of any subject in an outbox; the envelope `cloudevents` needs one."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a delivery is sent, and how it is composed and signed."""

    target: Target
    secrets: tuple[Secret, ...] = field(repr=False)
    composer: Composer = field(repr=False)
    hidden: frozenset[str] = frozenset()
    """Lower-case names of headers with secret values."""
    hidden_values: tuple[str, ...] = field(default=(), repr=False)
    """Values to redact from answers that are shown."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The request with secrets removed, and the result."""

    headers: Headers
    body: str
    outcome: Outcome
    status: int | None
    duration_ms: int
    error: str | None
    response: str | None
    asked_seconds: float | None
    """Seconds of an honoured Retry-After."""
    receipt: str
    """`genuine`, `not genuine` or `none`."""
    receipt_outcome: str | None


def send(
    destination: Destination,
    sample: SampleDelivery,
    engine: EngineName = "auto",
    ca_file: Path | None = None,
    at: datetime | None = None,
) -> Sent:
    """Make one attempt, signed for the time `at`; None: now, by this machine.

    Failures of the receiver are part of the result. Raises what `open_transport` raises, and
    `ValueError` if the engine cannot send to the target.
    """
    timestamp, key = int((at or datetime.now(UTC)).timestamp()), sample.key.text
    request = destination.composer.compose(
        key=key,
        subject_id=SUBJECT_ID,
        timestamp=timestamp,
        signature=Signer(destination.secrets).sign(key, timestamp, sample.body),
        traceparent=None,
        body=sample.body,
    )
    answer, seconds = asyncio.run(_exchange(destination, request, engine, ca_file))
    return _judged(destination, sample, request, answer, round(seconds * 1000))


async def _exchange(
    destination: Destination, request: Request, engine: EngineName, ca_file: Path | None
) -> tuple[Answer, float]:
    """Return the answer and the elapsed seconds."""
    transport = open_transport(engine, ca_file)
    try:
        if fault := transport.fault(destination.target):
            raise ValueError(fault)
        started = time.monotonic()
        answer = await transport.send(destination.target, request, Progress())
        return answer, time.monotonic() - started
    finally:
        await transport.close()


def _judged(
    destination: Destination,
    sample: SampleDelivery,
    request: Request,
    answer: Answer,
    duration_ms: int,
) -> Sent:
    outcome = classify(answer)
    status = error = response = asked_seconds = proven = None
    if isinstance(answer, Response):
        status, response = answer.status, storable(answer.body, hidden=destination.hidden_values)
        proven = proven_receipt(answer.body, sample.key.text, destination.secrets)
        if outcome is Outcome.THROTTLED or status == CONFLICT:
            asked_seconds = parse_retry_after(answer.retry_after, datetime.now(UTC))
        receipt = GENUINE if proven else NOT_GENUINE if _claims_one(answer.body) else NONE
    else:
        error, receipt = hide(answer.error, destination.hidden_values), NONE
    hidden = destination.hidden | {WEBHOOK_SIGNATURE}
    return Sent(
        headers=tuple((name, "***" if name in hidden else text) for name, text in request.headers),
        body=sample.body.decode(),
        outcome=outcome,
        status=status,
        duration_ms=duration_ms,
        error=error,
        response=response,
        asked_seconds=asked_seconds,
        receipt=receipt,
        receipt_outcome=json.loads(proven)["outcome"] if proven else None,
    )


def _claims_one(body: bytes) -> bool:
    """Return whether an answer contains a receipt, genuine or not."""
    try:
        value: Any = json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("receipt") is not None
