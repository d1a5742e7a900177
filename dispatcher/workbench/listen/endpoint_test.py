"""`holdfast endpoint test`: send one delivery that a receiver verifies but does not act on."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.dispatcher.outbound.endpoint_probe import (
    FAILED,
    TYPE,
    Reached,
    Verdict,
    judge,
    reason_of,
    unreached,
)
from holdfast.dispatcher.outbound.transport.connection_probe import probe
from holdfast.dispatcher.outbound.transport.transport import EngineName
from holdfast.dispatcher.workbench.listen import one_delivery
from holdfast.dispatcher.workbench.listen.one_delivery import Destination, Sent
from holdfast.dispatcher.workbench.listen.sample import OCCURRED_AT, SUBJECT_MEMBER, SampleDelivery
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

# The key is constant, so these bytes are too: other bytes would be a conflict at every receiver.
SUBJECT = "holdfast_test"
NOTE = "a test of the connection by holdfast endpoint test: there is nothing to act on"


@dataclass(frozen=True, slots=True)
class Tested:
    """The connection steps, the result of the request (None: not made), and the verdict."""

    steps: list[Reached]
    sent: Sent | None
    reason: str | None
    verdict: Verdict


def sample(endpoint: str) -> SampleDelivery:
    """Return the test delivery for an endpoint.

    It is always the same, so a receiver that acts on it anyway acts once. Its subject is its own,
    so it advances the sequence of no other one.
    """
    key = Key.of(["endpoint-test/v2", endpoint])
    data = {SUBJECT_MEMBER: SUBJECT, "note": NOTE}
    return SampleDelivery(key, Envelope.of(TYPE, OCCURRED_AT, key, data).body(1))


def send(
    destination: Destination,
    delivery: SampleDelivery,
    engine: EngineName = "auto",
    ca_file: Path | None = None,
    at: datetime | None = None,
) -> Tested:
    """Connect step by step, then make the request as the dispatcher does.

    `at` is the database's time, with which a dispatcher signs; None: this machine's.
    After a failed TLS handshake the request is still made, because an engine may trust other
    authorities. Raises what `one_delivery.send` and the connection probe raise.
    """
    ca_pem = None if ca_file is None else ca_file.read_bytes()
    steps = asyncio.run(probe(destination.target, ca_pem=ca_pem))
    verdict = unreached(steps)
    if verdict is not None and steps[-1].name != "tls":
        return Tested(steps, None, None, verdict)
    sent = one_delivery.send(destination, delivery, engine, ca_file, at)
    reason = reason_of(sent.response)
    if verdict is not None and sent.status is None:
        return Tested(steps, sent, reason, verdict)
    return Tested(
        [step for step in steps if step.end != FAILED],
        sent,
        reason,
        judge(sent.outcome, sent.status, reason, sent.receipt),
    )
