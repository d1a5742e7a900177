"""The httpx engine: one POST, every limit, faults as values.

It uses httpx's transport layer without its client, so that there is nothing to switch off: no
redirects, no cookies, no proxies from the environment, no decompression.
"""

import asyncio
import ssl
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx

from dispatcher.outbound.request import Request
from dispatcher.outbound.target import Target, url_fault
from dispatcher.outbound.transport.certificates import UnusablePemError, extend, trust
from dispatcher.outbound.transport.connections import Connections
from dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Guard,
    Resolve,
    ResolveError,
    system_addresses,
)
from dispatcher.outbound.transport.guarded_backend import GuardedBackend
from dispatcher.outbound.transport.transport import Progress
from dispatcher.shared.clock import seconds
from dispatcher.shared.outcome import (
    RESPONSE_BYTES_READ_MAX,
    Answer,
    NoAnswer,
    NotSent,
    Refused,
    Response,
    too_late,
)
from dispatcher.shared.text import one_line
from sink.contract.failpoints import failpoint
from sink.contract.wire import KEY_WINDOW


class _TooLateError(Exception):
    """The time of a request was over before its first byte."""


class HttpxTransport:
    """The transport of a dispatcher: one connection pool for each target."""

    def __init__(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> None:
        """`ca_file` holds further certificate authorities to trust, as PEM.

        Raises `OSError` when it cannot be read and `UnusablePemError` when it holds none.
        """
        self._ca_pem = None if ca_file is None else ca_file.read_bytes()
        self._tls = _tls_context(self._ca_pem)
        self._resolve = resolve
        self._channels: dict[Target, _Channel] = {}

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
        exchange = _Exchange(channel, target, request, progress, end)
        try:
            async with asyncio.timeout(end - seconds()):
                await exchange.run()
        except (httpx.HTTPError, ssl.SSLError, TimeoutError) as error:
            return exchange.answer(_fault(error, target.total_timeout))
        except _TooLateError:
            return NotSent(too_late(target.total_timeout))
        except ResolveError as error:
            return NotSent(one_line(str(error)))
        except AddressRefusedError as error:
            return Refused(one_line(str(error)), of_endpoint=True)
        return exchange.answer("no status line")

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

    def _channel(self, target: Target) -> "_Channel":
        if target not in self._channels:
            if fault := url_fault(target.url):
                raise httpx.InvalidURL(fault)
            guard = Guard(target.allowed, encrypted=target.encrypted, resolve=self._resolve)
            self._channels[target] = _Channel(target, self._tls_of(target), guard)
        return self._channels[target]

    def _tls_of(self, target: Target) -> ssl.SSLContext:
        if (
            target.ca_pem is None
            and target.client_cert_pem is None
            and target.client_key_pem is None
        ):
            return self._tls
        context = _tls_context(self._ca_pem)
        extend(context, target)
        return context


class _Channel(httpx.AsyncHTTPTransport):
    """httpx's transport to one target, on connections that are opened through the address guard."""

    def __init__(self, target: Target, tls: ssl.SSLContext, guard: Guard) -> None:
        super().__init__(verify=tls, trust_env=False)
        self.url = httpx.URL(target.url)
        # httpx has no parameter for a pool or a network backend of one's own.
        self.connections = Connections(tls, GuardedBackend(guard))
        self._pool = self.connections


class _Exchange:
    """One request on its way, and what is known of the response so far."""

    def __init__(
        self,
        channel: _Channel,
        target: Target,
        request: Request,
        progress: Progress,
        end: float,
    ) -> None:
        """`end` is when its time is over, by this process's clock."""
        self._end = end
        self._channel = channel
        self._target = target
        self._request = request
        self._progress = progress
        self._status: int | None = None
        self._retry_after: tuple[str, ...] = ()
        self._key_window: str | None = None
        self._body = bytearray()

    async def run(self) -> None:
        """Send, read the status line, then as much of the body as is looked at."""
        total = self._target.total_timeout
        timeouts = {
            "connect": min(self._target.connect_timeout, total),
            "pool": total,
            "read": total,
            "write": total,
        }
        request = httpx.Request(
            "POST",
            self._channel.url,
            headers=list(self._request.headers),
            content=self._request.body,
            extensions={"timeout": timeouts, "trace": self._trace},
        )
        response = await self._channel.handle_async_request(request)
        try:
            self._status = response.status_code
            self._retry_after = tuple(response.headers.get_list("retry-after"))
            self._key_window = response.headers.get(KEY_WINDOW)
            async for chunk in response.aiter_raw():
                self._body += chunk[: RESPONSE_BYTES_READ_MAX - len(self._body)]
                if len(self._body) >= RESPONSE_BYTES_READ_MAX:
                    break
        finally:
            # A body that was not read to its end takes its connection along.
            await response.aclose()

    def answer(self, fault: str) -> Answer:
        """Return what came of it: the status line decides, whatever happened to the body."""
        if self._status is not None:
            body = bytes(self._body)
            return Response(self._status, self._retry_after, body, self._key_window)
        return NoAnswer(fault) if self._progress.sent else NotSent(fault)

    async def _trace(self, name: str, _info: Any) -> None:
        match name:
            case "http11.send_request_headers.started":
                if seconds() >= self._end:
                    raise _TooLateError
                self._progress.sent = True
            case "http11.send_request_headers.complete":
                failpoint("D7")
            case "http11.send_request_body.complete":
                failpoint("D8")
            case "http11.receive_response_headers.complete":
                failpoint("D9")


def _fault(error: Exception, total_timeout: float) -> str:
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return f"no answer within {total_timeout:g} s"
    text = str(error)
    if isinstance(error, httpx.RemoteProtocolError):
        # Behind the colon it quotes the answer, which fewer people may see than a fault.
        text = text.partition(":")[0]
    return one_line(f"{name}: {text}" if text else name)


def _tls_context(ca_pem: bytes | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        trust(context, ca_pem)
    return context
