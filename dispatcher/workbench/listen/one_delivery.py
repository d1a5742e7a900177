"""One delivery through the dispatcher's own transport, and what the dispatcher would make of it.

Nothing is recorded in a database: what is sent here stands in no attempt and moves no lane.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dispatcher.outbound.receipt import proven_receipt
from dispatcher.outbound.request import Composer, Headers, Request
from dispatcher.outbound.retry_after import parse_retry_after
from dispatcher.outbound.signing import Signer
from dispatcher.outbound.target import Target
from dispatcher.outbound.transport.engines import open_transport
from dispatcher.outbound.transport.transport import EngineName, Progress
from dispatcher.receiver.message.secret import Secret
from dispatcher.shared.outcome import CONFLICT, Answer, Response, classify
from dispatcher.shared.text import hide, storable
from dispatcher.workbench.listen.sample_delivery import Specimen
from sink.contract.states import Outcome
from sink.contract.wire import WEBHOOK_SIGNATURE

NEXT = {
    Outcome.DELIVERED: "the lane advances to the subject's next decision",
    Outcome.FAILED: "sent again by the endpoint's schedule, under the same key",
    Outcome.THROTTLED: "sent again when the receiver asks for it, under the same key",
    Outcome.UNKNOWN: "the receiver may have acted: sent again under the same key",
    Outcome.REJECTED: "a dead letter at once: a person decides",
    Outcome.REFUSED: "nothing was sent, by our own guard; a dead letter at once",
    Outcome.GONE: "the endpoint is disabled; its decisions wait",
}
GENUINE, NOT_GENUINE, NONE = "genuine", "not genuine", "none"
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
SUBJECT_ID = 0
"""A number that no subject of an outbox has, for the envelope `cloudevents`."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where a delivery goes and how."""

    target: Target
    secrets: tuple[Secret, ...] = field(repr=False)
    composer: Composer = field(repr=False)
    hidden: frozenset[str] = frozenset()
    """Lower-case names of headers whose value is a secret."""
    hidden_values: tuple[str, ...] = field(default=(), repr=False)
    """What may not stand in what is shown of an answer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The request as it may be shown, and what came back."""

    headers: Headers
    body: str
    outcome: Outcome
    status: int | None
    duration_ms: int
    error: str | None
    response: str | None
    asked_seconds: float | None
    """What a Retry-After that counts asked for."""
    receipt: str
    """`genuine`, `not genuine` or `none`."""
    receipt_outcome: str | None


def send(
    way: Way, specimen: Specimen, engine: EngineName = "auto", ca_file: Path | None = None
) -> Sent:
    """Make one attempt. Faults of the other side are part of the result.

    Raises what `open_transport` raises, and `ValueError` when this engine cannot send there.
    """
    timestamp, key = int(time.time()), specimen.key.text
    request = way.composer.compose(
        key=key,
        subject_id=SUBJECT_ID,
        timestamp=timestamp,
        signature=Signer(way.secrets).sign(key, timestamp, specimen.body),
        traceparent=None,
        body=specimen.body,
    )
    answer, seconds = asyncio.run(_exchange(way, request, engine, ca_file))
    return _judged(way, specimen, request, answer, round(seconds * 1000))


async def _exchange(
    way: Way, request: Request, engine: EngineName, ca_file: Path | None
) -> tuple[Answer, float]:
    """Return the answer, and after how many seconds it came."""
    transport = open_transport(engine, ca_file)
    try:
        if fault := transport.fault(way.target):
            raise ValueError(fault)
        started = time.monotonic()
        answer = await transport.send(way.target, request, Progress())
        return answer, time.monotonic() - started
    finally:
        await transport.close()


def _judged(
    way: Way, specimen: Specimen, request: Request, answer: Answer, duration_ms: int
) -> Sent:
    outcome = classify(answer)
    status = error = response = asked_seconds = proven = None
    if isinstance(answer, Response):
        status, response = answer.status, storable(answer.body, hidden=way.hidden_values)
        proven = proven_receipt(answer.body, specimen.key.text, way.secrets)
        if outcome is Outcome.THROTTLED or status == CONFLICT:
            asked_seconds = parse_retry_after(answer.retry_after, datetime.now(UTC))
        receipt = GENUINE if proven else NOT_GENUINE if _claims_one(answer.body) else NONE
    else:
        error, receipt = hide(answer.error, way.hidden_values), NONE
    hidden = way.hidden | {WEBHOOK_SIGNATURE}
    return Sent(
        headers=tuple((name, "***" if name in hidden else text) for name, text in request.headers),
        body=specimen.body.decode(),
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
    """Return whether an answer has a receipt, genuine or not."""
    try:
        value: Any = json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("receipt") is not None
