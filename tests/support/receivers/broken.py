"""Nine realistic receivers, each with one fault."""

import asyncio
import base64
import binascii
import json
from datetime import UTC, datetime, timedelta

from holdfast.receiver import Answer, Delivery, Receipt, Secret, verify
from holdfast.sink.contract.wire import WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, ReceiptOutcome
from tests.support.receivers.sound import Known, Pairs, SoundReceiver

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
