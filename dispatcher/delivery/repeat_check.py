"""Asks a receiver about a key before the key is sent to it again.

Section 8 of `docs/receivers/PROTOCOL.md`. Only a proven answer for exactly the bytes to be
sent counts; after any other answer the entry is sent again, which is safe.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from holdfast.dispatcher.delivery.endpoints import Ready
from holdfast.dispatcher.outbound.endpoint import inquiry_seconds
from holdfast.dispatcher.outbound.inquiry_answer import InquiryError, judged
from holdfast.dispatcher.outbound.request import USER_AGENT
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.getting import Getter, UnusableTargetError
from holdfast.dispatcher.shared.outcome import Response
from holdfast.sink.contract.wire import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP


@dataclass(slots=True)
class _Channel:
    target: Target
    getter: Getter
    in_use: int = 0


class RepeatChecker:
    """Inquires at endpoints that have an inquiry path, over connections kept for each of them."""

    def __init__(self, ca_file: Path | None = None) -> None:
        """`ca_file` holds additional certificate authorities. Raises `OSError` if unreadable."""
        self._ca_pem = None if ca_file is None else ca_file.read_bytes()
        self._channels: dict[int, _Channel] = {}
        self._old: list[_Channel] = []

    async def check(self, ready: Ready, key: str, body: bytes, timestamp: int) -> Response | None:
        """Return the receiver's proof that it processed `key` with these bytes, or None.

        `timestamp` is the POSIX time of the inquiry.
        """
        path = ready.endpoint.inquiry_path
        if path is None:
            return None
        headers = (
            ("user-agent", USER_AGENT),
            ("accept-encoding", "identity"),
            *ready.headers,
            (WEBHOOK_ID, key),
            (WEBHOOK_TIMESTAMP, str(timestamp)),
            (WEBHOOK_SIGNATURE, ready.signer.sign(key, timestamp, b"")),
        )
        try:
            channel = await self._channel(ready)
            channel.in_use += 1
            try:
                answer = await channel.getter.get(
                    f"{path}{key}", headers, inquiry_seconds(ready.endpoint.total_timeout)
                )
            finally:
                channel.in_use -= 1
            receipt = judged(answer, key, ready.secrets)
        except (InquiryError, UnusableTargetError):
            return None
        if receipt is None or receipt.body_sha256 != sha256(body).digest():
            return None
        return answer if isinstance(answer, Response) else None

    async def close(self) -> None:
        """Close every connection."""
        for channel in (*self._channels.values(), *self._old):
            await channel.getter.close()
        self._channels.clear()
        self._old.clear()

    async def _channel(self, ready: Ready) -> _Channel:
        target = ready.target
        channel_before = self._channels.get(target.endpoint_id)
        if channel_before is not None and channel_before.target == target:
            return channel_before
        channel = _Channel(target, Getter(target, ca_pem=self._ca_pem))
        self._channels[target.endpoint_id] = channel
        if channel_before is not None:
            self._old.append(channel_before)
        for each in [each for each in self._old if not each.in_use]:
            self._old.remove(each)
            await each.getter.close()
        return channel
