"""Sending one lane: entry after entry, until one is not delivered or the lease is too short."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from dispatcher.clock import seconds
from dispatcher.core.cloudevents import NotOurBodyError
from dispatcher.core.decide import release, settle
from dispatcher.core.lease import may_send
from dispatcher.core.outcome import (
    CONFLICT,
    Answer,
    NoAnswer,
    NotSent,
    Refused,
    Response,
    classify,
)
from dispatcher.core.retry_after import parse_retry_after
from dispatcher.core.text import one_line, storable
from dispatcher.core.values import Attempt, Endpoint, Entry, Lane, Settlement
from dispatcher.endpoints import USER_AGENT, Endpoints, Ready
from dispatcher.holds import Holds
from dispatcher.ports import Progress, Transport
from dispatcher.receipt import proven_receipt
from dispatcher.receiver.secret import Secret
from dispatcher.telemetry import Telemetry
from dispatcher.tracing import attempt_spans
from sink.contract.failpoints import failpoint
from sink.contract.key import Key
from sink.contract.states import Outcome

__all__ = ["USER_AGENT", "Sender"]


class Sender:
    """Takes lanes from their claim to their settlement."""

    def __init__(
        self,
        endpoints: Endpoints,
        transport: Transport,
        telemetry: Telemetry,
        *,
        settle: Callable[[Settlement], None],
        holds: Holds,
    ) -> None:
        """`settle` accepts the result of a lane; `holds` knows what must not be sent after all.

        Whoever wants spans has set up OpenTelemetry before.
        """
        self._holds = holds
        self._endpoints = endpoints
        self._transport = transport
        self._telemetry = telemetry
        self._settle = settle
        self._stopping = False
        self._span = attempt_spans()

    def stop(self) -> None:
        """Begin no further attempt; those in flight go on."""
        self._stopping = True

    def release(self, lane: Lane) -> None:
        """Give back a lane of which nothing was sent."""
        self._settle(release(lane))

    async def send(self, lane: Lane) -> None:
        """Send the entries of `lane`, then hand its settlement over."""
        attempts: list[Attempt] = []
        endpoint: Endpoint | None = None
        for entry in lane.entries:
            ready = self._ready(lane)
            if ready is None:
                break
            endpoint = ready.endpoint
            with self._span(endpoint, entry) as span:
                attempt = await self._attempt(ready, lane, entry)
                if attempt is not None:
                    span.judged(attempt)
                    attempts.append(attempt)
            if attempt is None or attempt.outcome is not Outcome.DELIVERED:
                break
        failpoint("D10")
        if endpoint is None:
            self.release(lane)
        else:
            draw = random.random()  # noqa: S311 - jitter, not a secret
            self._settle(settle(lane, attempts, endpoint, draw=draw))

    def _ready(self, lane: Lane) -> Ready | None:
        """Return the endpoint if an attempt may begin now."""
        ready = self._endpoints.ready.get(lane.endpoint_id)
        if ready is None or self._stopping or not self._holds.allow(lane):
            return None
        in_time = may_send(seconds(), lane.trusted_until, ready.endpoint.total_timeout)
        return ready if in_time else None

    async def _attempt(self, ready: Ready, lane: Lane, entry: Entry) -> Attempt | None:
        """Make one attempt; None when nothing was sent and nothing is to be charged."""
        progress, started, key = Progress(), seconds(), Key(entry.key).text
        ours = True
        try:
            answer = await self._answer(ready, lane, entry, key, progress)
            ours = False
            if answer is None:
                return None
        except asyncio.CancelledError:
            # Only a stop that ran out of time cancels a lane; what was sent must still be settled.
            if not progress.sent:
                return None
            answer = NoAnswer("the dispatcher was stopped before the answer came")
        except Exception as error:  # noqa: BLE001 - a fault of ours must not lose an attempt
            self._telemetry.crashed("send", error)
            fault = one_line(f"fault of the dispatcher: {type(error).__name__}")
            answer = NoAnswer(fault) if progress.sent else NotSent(fault)
        duration_ms = round((seconds() - started) * 1000)
        return _judged(entry, key, answer, ready.secrets, duration_ms, ours=ours)

    async def _answer(
        self, ready: Ready, lane: Lane, entry: Entry, key: str, progress: Progress
    ) -> Answer | None:
        timestamp = int(time.time())
        try:
            request = ready.composer.compose(
                key=key,
                subject_id=lane.subject_id,
                timestamp=timestamp,
                signature=ready.signer.sign(key, timestamp, entry.body),
                traceparent=entry.traceparent,
                body=entry.body,
            )
        except NotOurBodyError as error:
            return Refused(str(error))
        failpoint("D3")
        if self._ready(lane) is None:
            # This process stood still since it looked, and the lease may be somebody else's.
            return None
        return await self._transport.send(
            ready.target, request, ready.endpoint.total_timeout, progress
        )


def _judged(
    entry: Entry,
    key: str,
    answer: Answer,
    secrets: Sequence[Secret],
    duration_ms: int,
    *,
    ours: bool,
) -> Attempt:
    outcome = classify(answer)
    status = error = response = receipt = asked_seconds = None
    if isinstance(answer, Response):
        status = answer.status
        receipt = proven_receipt(answer.body, key, secrets)
        # A receipt says all that the body says; other answers are kept for people to read.
        response = None if receipt else storable(answer.body)
        if outcome is Outcome.THROTTLED or status == CONFLICT:
            asked_seconds = parse_retry_after(answer.retry_after, datetime.now(UTC))
    else:
        error = answer.error
    return Attempt(
        sequence=entry.sequence,
        number=entry.number,
        key=entry.key,
        outcome=outcome,
        status=status,
        duration_ms=duration_ms,
        error=error,
        response=response,
        receipt=receipt,
        asked_seconds=asked_seconds,
        ours=ours,
    )
