"""A delivery that a receiver verifies and does not act on, sent once: `holdfast endpoint test`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from dispatcher.outbound.endpoint_probe import (
    FAILED,
    TYPE,
    Reached,
    Verdict,
    judge,
    reason_of,
    unreached,
)
from dispatcher.outbound.transport.connection_probe import probe
from dispatcher.outbound.transport.transport import EngineName
from dispatcher.workbench.listen import one_delivery
from dispatcher.workbench.listen.one_delivery import Sent, Way
from dispatcher.workbench.listen.sample_delivery import OCCURRED_AT, Specimen
from sink.contract.envelope import Envelope
from sink.contract.key import Key

NOTE = "a test of the connection by holdfast endpoint test: there is nothing to act on"


@dataclass(frozen=True, slots=True)
class Tested:
    """The way there, what came of the request (None: it was not made), and the verdict."""

    steps: list[Reached]
    sent: Sent | None
    reason: str | None
    verdict: Verdict


def specimen(endpoint: str) -> Specimen:
    """Return the delivery for an endpoint, always the same: who acts on it all the same acts once.

    It names no subject, so it moves nobody's fence.
    """
    key = Key.of(["endpoint-test/v1", endpoint])
    return Specimen(key, Envelope.of(TYPE, OCCURRED_AT, key, {"note": NOTE}).body(1))


def send(
    way: Way, delivery: Specimen, engine: EngineName = "auto", ca_file: Path | None = None
) -> Tested:
    """Go the way step by step, then make the request as the dispatcher would.

    A handshake that failed does not keep the request from being made: the engines know authorities
    of their own. Raises what `one_delivery.send` and `probe` raise.
    """
    ca_pem = None if ca_file is None else ca_file.read_bytes()
    steps = asyncio.run(probe(way.target, ca_pem=ca_pem))
    verdict = unreached(steps)
    if verdict is not None and steps[-1].name != "tls":
        return Tested(steps, None, None, verdict)
    sent = one_delivery.send(way, delivery, engine, ca_file)
    reason = reason_of(sent.response)
    if verdict is not None and sent.status is None:
        return Tested(steps, sent, reason, verdict)
    return Tested(
        [step for step in steps if step.end != FAILED],
        sent,
        reason,
        judge(sent.outcome, sent.status, reason, sent.receipt),
    )
