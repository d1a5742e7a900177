"""The httpx engine: one POST, every limit, faults as values.

It delivers where `httptools`, the parser of the asyncio engine, has no wheel, and for comparison
(`--engine httpx`).
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import (
    UnusablePemError,
    bundled_authorities,
    extend,
    has_certificates,
)
from holdfast.dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Resolve,
    ResolveError,
)
from holdfast.dispatcher.outbound.transport.httpx_channel import (
    FAULTS,
    HttpxChannel,
    Received,
    Trace,
    fault_text,
)
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.outcome import (
    Answer,
    NoAnswer,
    NotSent,
    Refused,
    Response,
    too_late,
)
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.wire import KEY_WINDOW


class _TooLateError(Exception):
    """A request timed out before its first byte was written."""


class HttpxTransport:
    """The transport of a dispatcher: one connection pool for each target."""

    def __init__(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> None:
        """`ca_file` holds further certificate authorities to trust, as PEM.

        Raises `OSError` when it cannot be read and `UnusablePemError` when it holds none.
        """
        self._ca_pem = None if ca_file is None else ca_file.read_bytes()
        self._tls = bundled_authorities(self._ca_pem)
        self._resolve = resolve
        self._channels: dict[Target, HttpxChannel] = {}

    def fault(self, target: Target) -> str | None:
        """Return why httpx cannot use the target's URL or certificates, or None."""
        try:
            self._channel(target)
        except httpx.InvalidURL as error:
            return f"its URL cannot be used: {one_line(str(error))}"
        except UnusablePemError as error:
            return str(error)
        return None

    async def send(self, target: Target, request: Request, progress: Progress) -> Answer:
        """Make one attempt; see `Transport.send`."""
        end = seconds() + target.total_timeout
        try:
            channel = self._channel(target)
        except (httpx.InvalidURL, UnusablePemError) as error:
            return Refused(one_line(str(error)), of_endpoint=True)
        received, total = Received(), target.total_timeout
        traced = _traced(progress, end)
        try:
            async with asyncio.timeout(end - seconds()):
                await channel.exchange(
                    channel.request(
                        "POST", request.headers, total, content=request.body, trace=traced
                    ),
                    received,
                )
        except FAULTS as error:
            return _answer(received, fault_text(error, total), sent=progress.sent)
        except _TooLateError:
            return NotSent(too_late(total))
        except ResolveError as error:
            return NotSent(one_line(str(error)))
        except AddressRefusedError as error:
            return Refused(one_line(str(error)), of_endpoint=True)
        return _answer(received, "no status line", sent=progress.sent)

    async def retain(self, targets: Collection[Target]) -> None:
        """Close the connections of targets that are not in `targets` and not in use any more."""
        for target in self._channels.keys() - set(targets):
            if not self._channels[target].connections.in_use:
                await self._channels.pop(target).aclose()
        for channel in tuple(self._channels.values()):
            await channel.connections.close_expired()

    def drop(self, target: Target) -> None:
        """Use no idle connection to `target` again; see `Transport.drop`."""
        channel = self._channels.get(target)
        if channel is not None:
            channel.connections.drop()

    async def close(self) -> None:
        """Close every connection."""
        while self._channels:
            await self._channels.popitem()[1].aclose()

    def _channel(self, target: Target) -> HttpxChannel:
        if target not in self._channels:
            tls = self._tls
            if has_certificates(target):
                tls = extend(bundled_authorities(self._ca_pem), target)
            self._channels[target] = HttpxChannel(target, tls, self._resolve)
        return self._channels[target]


def _answer(received: Received, fault: str, *, sent: bool) -> Answer:
    """Return the answer: a status line makes it a response, even if the body is incomplete."""
    if received.status is not None:
        window = received.headers.get(KEY_WINDOW)
        return Response(received.status, received.retry_after, bytes(received.body), window)
    return NoAnswer(fault) if sent else NotSent(fault)


def _traced(progress: Progress, end: float) -> Trace:
    """Return a trace callback that records the start of writing, and refuses it after `end`."""

    async def trace(name: str, _info: Any) -> None:
        match name:
            case "http11.send_request_headers.started":
                if seconds() >= end:
                    raise _TooLateError
                progress.sent = True
            case "http11.send_request_headers.complete":
                failpoint("D7")
            case "http11.send_request_body.complete":
                failpoint("D8")
            case "http11.receive_response_headers.complete":
                failpoint("D9")

    return trace
