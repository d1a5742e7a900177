"""A correct receiver that keeps everything in memory.

Each broken one overrides one step of it, so that a failure of the kit's is about that step.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.receiver import (
    Answer,
    Delivery,
    Problem,
    Receipt,
    Refused,
    Secret,
    VerificationError,
    answer,
    verify,
)
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.wire import KEY_WINDOW, KEY_WINDOW_FOREVER, ReceiptOutcome

Pairs = list[tuple[bytes, bytes]]


@dataclass
class Known:
    """The stored state of a key."""

    body_sha256: bytes
    outcome: ReceiptOutcome
    at: datetime


class SoundReceiver:
    """An ASGI application: POST anywhere is a delivery, GET /applied/KEY is a probe."""

    key_window: str | None = KEY_WINDOW_FOREVER

    def __init__(self, *secrets: Secret) -> None:
        self.secrets = secrets
        self.keys: dict[str, Known] = {}
        self.fences: dict[str, int] = {}
        self.applied: Counter[str] = Counter()
        """Return how often the action of a key was applied, for a probe."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET" and scope["path"].startswith("/applied/"):
            key = scope["path"].removeprefix("/applied/")
            await _send(send, Answer(200, {}, b'{"applied": %d}' % self.applied[key]))
            return
        if scope["method"] != "POST":
            await _send(send, Problem(405, "method_not_allowed", "POST").answer())
            return
        body = await _body(receive)
        if body is None:
            await _send(send, Problem(413, "body_too_large", "too large").answer())
            return
        result = await self.answer(list(scope["headers"]), body)
        await _send(send, result)

    async def answer(self, headers: Pairs, body: bytes) -> Answer:
        """Verify, apply, answer."""
        try:
            delivery = self.verify(headers, body)
        except VerificationError as error:
            return Problem(error.status, error.reason, error.detail).answer()
        try:
            receipt = await self.receive(delivery)
        except Refused as refused:
            return refused.problem.answer()
        made = self.compose(receipt, delivery)
        if self.key_window is not None:
            made.headers[KEY_WINDOW] = self.key_window
        return made

    def verify(self, headers: Pairs, body: bytes) -> Delivery:
        return verify(headers, body, self.secrets)

    async def receive(self, delivery: Delivery) -> Receipt:
        """Decide by key and sequence, and apply. It never awaits, so it is atomic."""
        known = self.look(delivery)
        return self.repeat(delivery, known) if known else self.record(delivery)

    def look(self, delivery: Delivery) -> Known | None:
        return self.keys.get(delivery.key)

    def repeat(self, delivery: Delivery, known: Known) -> Receipt:
        if known.body_sha256 != hashlib.sha256(delivery.raw).digest():
            return Receipt(delivery.key, ReceiptOutcome.CONFLICT)
        is_stale = known.outcome is ReceiptOutcome.STALE
        outcome = ReceiptOutcome.STALE if is_stale else ReceiptOutcome.DUPLICATE
        return Receipt(delivery.key, outcome, known.at, replayed=True)

    def record(self, delivery: Delivery) -> Receipt:
        outcome = ReceiptOutcome.APPLIED if self.advances(delivery) else ReceiptOutcome.STALE
        hashed = hashlib.sha256(delivery.raw).digest()
        self.keys[delivery.key] = known = Known(hashed, outcome, datetime.now(UTC))
        if outcome is ReceiptOutcome.APPLIED:
            self.applied[delivery.key] += 1
        return Receipt(delivery.key, outcome, known.at)

    def advances(self, delivery: Delivery) -> bool:
        """Advance the subject's sequence, unless it is already as high."""
        subject = self.subject(delivery)
        if self.fences.get(subject, 0) >= delivery.body.sequence:
            return False
        self.fences[subject] = delivery.body.sequence
        return True

    def subject(self, delivery: Delivery) -> str:
        return delivery.body.text("account" if "account" in delivery.body.data else "merchant_id")

    def compose(self, receipt: Receipt, delivery: Delivery) -> Answer:
        return answer(receipt, delivery.secret)


class BareReceiver(SoundReceiver):
    """A correct receiver whose answers have no outcome, like those of many services."""

    key_window = None

    def compose(self, receipt: Receipt, delivery: Delivery) -> Answer:
        made = answer(receipt, delivery.secret)
        return Answer(made.status, {"content-type": "application/json"}, b'{"ok":true}')


async def _body(receive: Any) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return body


async def _send(send: Any, made: Answer) -> None:
    headers = [(name.encode(), value.encode()) for name, value in made.headers.items()]
    headers.append((b"content-length", str(len(made.body)).encode()))
    await send({"type": "http.response.start", "status": made.status, "headers": headers})
    await send({"type": "http.response.body", "body": made.body})
