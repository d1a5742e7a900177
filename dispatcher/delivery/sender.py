"""Sends one lane: entry after entry, until one is not delivered or the lease is too short."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints, Ready
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lease import may_send
from holdfast.dispatcher.delivery.rules.values import Attempt, Entry, Lane, Settlement
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.delivery.telemetry.tracing import AttemptSpan, attempt_spans
from holdfast.dispatcher.outbound.cloudevents import NotOurBodyError
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.outbound.key_window import parse_key_window, window_text
from holdfast.dispatcher.outbound.receipt import other_key, proven_receipt
from holdfast.dispatcher.outbound.request import Request, key_text
from holdfast.dispatcher.outbound.retry_after import parse_retry_after
from holdfast.dispatcher.outbound.transport.transport import Progress, Transport
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.outcome import (
    CONFLICT,
    Answer,
    NoAnswer,
    NotSent,
    Refused,
    Response,
    classify,
)
from holdfast.dispatcher.shared.text import hide, one_line, storable
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.states import Outcome

INQUIRED = "not sent again: the receiver said what became of the key"
"""Stored as the response of an attempt that an inquiry settled."""

RepeatCheck = Callable[[Ready, str, bytes, int], Awaitable[Response | None]]
"""From a key, its body and the POSIX time to the receiver's proof of processing them, if any."""


class Sender:
    """Sends claimed lanes and hands over their settlements."""

    def __init__(
        self,
        endpoints: Endpoints,
        transport: Transport,
        telemetry: Telemetry,
        *,
        settle: Callable[[Settlement], None],
        holds: Holds,
        clock: DatabaseClock,
        check_repeat: RepeatCheck | None = None,
    ) -> None:
        """`settle` accepts the result of a lane; `holds` knows which endpoints are on hold.

        `check_repeat` asks a receiver about a key (`holdfast.dispatcher.delivery.repeat_check`).
        For spans, OpenTelemetry must be set up before.
        """
        self._clock = clock
        self._holds = holds
        self._endpoints = endpoints
        self._transport = transport
        self._telemetry = telemetry
        self._settle = settle
        self._stopping = False
        self._span = attempt_spans()
        self._check_repeat = check_repeat

    def stop(self) -> None:
        """Start no further attempt; those in flight continue."""
        self._stopping = True

    def release(self, lane: Lane) -> None:
        """Release a lane of which nothing was sent."""
        self._settle(release(lane))

    async def send(self, lane: Lane) -> bool:
        """Send the entries of `lane` and settle it; returns whether any entry was tried."""
        attempts: list[Attempt] = []
        endpoint: Endpoint | None = None
        for entry in lane.entries:
            ready = self._ready(lane)
            if ready is None:
                break
            endpoint = ready.endpoint
            if self._span is None:
                attempt = await self._attempt(ready, lane, entry)
            else:
                attempt = await self._traced(self._span(endpoint, entry), ready, lane, entry)
            if attempt is None:
                break
            attempts.append(attempt)
            if attempt.outcome is not Outcome.DELIVERED:
                break
        failpoint("D10")
        if endpoint is None:
            self.release(lane)
        else:
            draw = random.random()  # noqa: S311 - jitter, not a secret
            settlement = settle(lane, attempts, endpoint, draw=draw)
            self._holds.tried(settlement, endpoint)
            self._settle(settlement)
        return bool(attempts)

    async def _traced(
        self,
        spanning: AbstractContextManager[AttemptSpan],
        ready: Ready,
        lane: Lane,
        entry: Entry,
    ) -> Attempt | None:
        with spanning as span:
            attempt = await self._attempt(ready, lane, entry)
            if attempt is not None:
                span.judged(attempt)
        return attempt

    def _ready(self, lane: Lane) -> Ready | None:
        """Return the endpoint if attempts may start now; the lease is checked later."""
        if self._stopping or not self._holds.allow(lane):
            return None
        return self._endpoints.ready.get(lane.endpoint_id)

    async def _attempt(self, ready: Ready, lane: Lane, entry: Entry) -> Attempt | None:
        """Make one attempt; None when nothing was sent and no attempt counts."""
        progress, started, key = Progress(), seconds(), key_text(entry.key)
        ours = True
        prior_answer: Answer | None = None
        try:
            if not may_send(started, lane.trusted_until, ready.endpoint.attempt_seconds):
                return None
            if entry.number > 1:
                prior_answer = await self._before_repeating(ready, entry, key)
            answer = prior_answer or await self._send(ready, lane, entry, key, progress)
            if answer is None:
                return None
            ours = False
        except asyncio.CancelledError:
            # Only a stop that timed out cancels a lane; a request that was sent must be settled.
            if not progress.sent:
                return None
            answer = NoAnswer("the dispatcher was stopped before the answer came")
        except Exception as error:  # noqa: BLE001 - an internal error must not lose an attempt
            self._telemetry.crashed("send", error)
            fault = one_line(f"fault of the dispatcher: {type(error).__name__}")
            answer = NoAnswer(fault) if progress.sent else NotSent(fault)
        duration_ms = round((seconds() - started) * 1000)
        attempt = _judged(entry, key, answer, ready, duration_ms, ours=ours, clock=self._clock)
        if attempt.other_key is not None:
            self._transport.drop(ready.target)
        if isinstance(answer, Response) and attempt.receipt and self._learn(ready, answer):
            attempt = replace(attempt, window_shrunk=True)
        return (
            replace(attempt, response=INQUIRED) if isinstance(prior_answer, Response) else attempt
        )

    async def _before_repeating(
        self, ready: Ready, entry: Entry, key: str
    ) -> Response | Refused | None:
        """Return the receiver's proof for this key, or why the key must not be sent again."""
        proof: Response | None = None
        try:
            if self._check_repeat is not None:
                proof = await self._check_repeat(ready, key, entry.body, int(self._clock.now()))
        except Exception as error:  # noqa: BLE001 - without an answer the key is sent again
            self._telemetry.crashed("ask", error)
        if proof is None and entry.forgotten:
            # Another dispatcher may have just learned the window: the claim read it.
            kept_for = f" ({window_text(ready.key_window)})" if ready.key_window is not None else ""
            return Refused(
                f"first tried longer ago than the receiver keeps keys{kept_for}:"
                " sending it again could repeat the action"
            )
        return proof

    async def _send(
        self, ready: Ready, lane: Lane, entry: Entry, key: str, progress: Progress
    ) -> Answer | None:
        """Send the entry; None where the lease could end before an answer."""
        request = self._request(ready, lane, entry, key)
        if isinstance(request, Refused):
            return request
        failpoint("D3")
        if not may_send(seconds(), lane.trusted_until, ready.target.total_timeout):
            return None
        return await self._transport.send(ready.target, request, progress)

    def _learn(self, ready: Ready, answer: Response) -> bool:
        """Learn the key window of an answer with a genuine receipt; returns whether it shrank.

        Without proof, whatever answers between the receiver and us could state one.
        """
        stated = parse_key_window(answer.key_window)
        if stated is None or classify(answer) is not Outcome.DELIVERED:
            return False
        return self._endpoints.learn(ready, stated)

    def _request(self, ready: Ready, lane: Lane, entry: Entry, key: str) -> Request | Refused:
        timestamp = int(self._clock.now())
        try:
            return ready.composer.compose(
                key=key,
                subject_id=lane.subject_id,
                timestamp=timestamp,
                signature=ready.signer.sign(key, timestamp, entry.body),
                traceparent=entry.traceparent,
                body=entry.body,
            )
        except NotOurBodyError as error:
            return Refused(str(error))


def _judged(
    entry: Entry,
    key: str,
    answer: Answer,
    ready: Ready,
    duration_ms: int,
    *,
    ours: bool,
    clock: DatabaseClock,
) -> Attempt:
    outcome = classify(answer)
    status = error = response = receipt = asked_seconds = other = None
    if isinstance(answer, Response):
        status = answer.status
        if answer.body:
            receipt = proven_receipt(answer.body, key, ready.secrets)
            # A receipt has all the information of the body. Other bodies are stored for operators.
            response = None if receipt else storable(answer.body, hidden=ready.hidden)
            other = None if receipt else other_key(answer.body, key)
        if other is not None:
            # It answers another request. This one was sent, and its result is unknown.
            outcome = Outcome.UNKNOWN
            error = f"the answer is about another key, {other}: nothing is known of this one"
        elif outcome is Outcome.THROTTLED or status == CONFLICT:
            asked_seconds = parse_retry_after(answer.retry_after, clock.moment())
    else:
        error = hide(answer.error, ready.hidden)
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
        other_key=other,
        barred=isinstance(answer, Refused) and answer.of_endpoint,
    )
