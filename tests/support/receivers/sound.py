"""A correct receiver that keeps everything in memory.

Each broken one overrides one step of it, so that a failure of the kit's is about that step.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import uvicorn

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
from holdfast.sink.contract.wire import (
    KEY_WINDOW,
    KEY_WINDOW_FOREVER,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
    ReceiptOutcome,
)
from tests.support.waiting import eventually

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


COMMIT_SECONDS = 2.0
LOOK_SECONDS = 0.05


class ReserialisedBody(SoundReceiver):
    """Verifies JSON that was parsed and serialized again."""

    def verify(self, headers: Pairs, body: bytes) -> Delivery:
        try:
            written = json.dumps(json.loads(body), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            return super().verify(headers, body)
        return super().verify(headers, written.encode(errors="surrogatepass"))


class KeepsKeysBriefly(SoundReceiver):
    """Keeps keys only for the tolerance of a timestamp: five minutes, or `keep_seconds`."""

    key_window = None

    def __init__(self, *secrets: Secret, keep_seconds: float = 300.0) -> None:
        super().__init__(*secrets)
        self._keep = timedelta(seconds=keep_seconds)

    def look(self, delivery: Delivery) -> Known | None:
        known = super().look(delivery)
        return known if known and datetime.now(UTC) - known.at < self._keep else None


class AnswersBeforeCommit(SoundReceiver):
    """Answers once the job is queued; a worker commits later, at the next request."""

    def __init__(self, *secrets: Secret) -> None:
        super().__init__(*secrets)
        self.queued: dict[str, asyncio.TimerHandle] = {}

    async def receive(self, delivery: Delivery) -> Receipt:
        waiting = self.queued.pop(delivery.key, None)
        if waiting is not None:
            waiting.cancel()
            self.applied[delivery.key] += 1
            return Receipt(delivery.key, ReceiptOutcome.IN_PROGRESS)
        receipt = await super().receive(delivery)
        if receipt.outcome is ReceiptOutcome.APPLIED:
            self.applied[delivery.key] -= 1
            self.queued[delivery.key] = asyncio.get_running_loop().call_later(
                COMMIT_SECONDS, self._commit, delivery.key
            )
        return receipt

    def compose(self, receipt: Receipt, delivery: Delivery) -> Answer:
        made = super().compose(receipt, delivery)
        made.headers.pop("retry-after", None)
        return made

    def _commit(self, key: str) -> None:
        del self.queued[key]
        self.applied[key] += 1


class FailsOnBadBase64(SoundReceiver):
    """Answers 500 for an error of its base64 decoder."""

    async def answer(self, headers: Pairs, body: bytes) -> Answer:
        for name, value in headers:
            if name == WEBHOOK_SIGNATURE.encode():
                entries = (entry for entry in value.split(b" ") if entry.startswith(b"v1,"))
                try:
                    for entry in entries:
                        base64.b64decode(entry.removeprefix(b"v1,"), validate=True)
                except (binascii.Error, ValueError):
                    return Answer(500, {"content-type": "text/plain"}, b"Internal Server Error")
        return await super().answer(headers, body)


class WaitsForGaps(SoundReceiver):
    """Insists on each sequence: it is busy until the one before has come."""

    async def receive(self, delivery: Delivery) -> Receipt:
        sequence = delivery.body.sequence
        if sequence > self.fences.get(self.subject(delivery), sequence - 1) + 1:
            return Receipt(delivery.key, ReceiptOutcome.IN_PROGRESS)
        return await super().receive(delivery)


class GoesBackwards(SoundReceiver):
    """Applies the last arrival, even if its sequence is lower than one already applied."""

    def advances(self, delivery: Delivery) -> bool:
        super().advances(delivery)
        return True


class AcceptsOldTimestamps(SoundReceiver):
    """Checks the signature but not the age."""

    def verify(self, headers: Pairs, body: bytes) -> Delivery:
        now = datetime.now(UTC)
        for name, value in headers:
            if name == WEBHOOK_TIMESTAMP.encode() and value.isdigit():
                signed = min(int(value[:12]), int(now.timestamp()))
                now = datetime.fromtimestamp(signed, UTC)
        return verify(headers, body, self.secrets, now=now)


class ConflictIsDone(SoundReceiver):
    """Answers 200 to a known key with a different body."""

    def repeat(self, delivery: Delivery, known: Known) -> Receipt:
        return Receipt(delivery.key, ReceiptOutcome.DUPLICATE, known.at, replayed=True)


class LooksThenInserts(SoundReceiver):
    """Looks up a key, waits for its database, then inserts: a race lets two through."""

    async def receive(self, delivery: Delivery) -> Receipt:
        known = self.look(delivery)
        await asyncio.sleep(LOOK_SECONDS)
        return self.repeat(delivery, known) if known else self.record(delivery)

    def advances(self, delivery: Delivery) -> bool:
        subject = self.subject(delivery)
        sequence = delivery.body.sequence
        self.fences[subject] = max(self.fences.get(subject, 0), sequence)
        return self.fences[subject] == sequence


class TrustsData(SoundReceiver):
    """Takes the subject as it is: without one, or with a list, it answers 500 each time."""

    def subject(self, delivery: Delivery) -> str:
        subject: str = delivery.body.data["merchant_id"]
        return subject


@contextmanager
def serving(app: Any, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `app`, with TLS as localhost if configured; yields the root URL."""
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    config.load()
    config.ssl = tls
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert server.started
            port = listener.getsockname()[1]
            yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
