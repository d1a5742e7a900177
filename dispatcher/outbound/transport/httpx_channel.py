"""What the httpx engine and inquiries share: httpx's transport to one target, behind the guard.

It is httpx's transport layer without its client, so that there is nothing to switch off: no
redirects, no cookies, no proxies from the environment, no decompression.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from holdfast.dispatcher.outbound.target import Target, url_fault
from holdfast.dispatcher.outbound.transport.connections import Connections
from holdfast.dispatcher.outbound.transport.guard import Guard, Resolve
from holdfast.dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.failpoints import failpoint


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens the TCP connections of one target."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first permitted address of `host` that accepts.

        `timeout` covers the resolver and all addresses together. Raises `AddressRefusedError`,
        `ResolveError`, or httpcore's own connection errors.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout or 0)
        addresses = await self._guard.addresses(host, port, timeout)
        failpoint("D5")
        addresses_left = len(addresses)
        while True:
            # An address that drops packets must leave time for the addresses after it.
            share = max(0.001, (end - loop.time()) / addresses_left) if timeout else None
            try:
                stream = await self._network.connect_tcp(
                    addresses[-addresses_left], port, share, local_address, socket_options
                )
                return _Handshake(stream) if self._guard.encrypted else stream
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                addresses_left -= 1
                if not addresses_left:
                    raise


class _Handshake(httpcore.AsyncNetworkStream):
    """A connection before its TLS handshake; it is closed when the handshake is cancelled.

    httpcore closes it after an error but not after a cancellation, which is what a deadline causes.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
    ) -> httpcore.AsyncNetworkStream:
        """Make the handshake; the certificate must be for the name of the URL."""
        failpoint("D6")
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


FAULTS = (httpx.HTTPError, ssl.SSLError, TimeoutError)
"""Exceptions of an exchange that the receiver or the connection to it causes."""

Trace = Callable[[str, Any], Awaitable[None]]


@dataclass(slots=True)
class Received:
    """What has arrived of a response; a fault may cut it short at any byte."""

    status: int | None = None
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: bytearray = field(default_factory=bytearray)

    @property
    def retry_after(self) -> tuple[str, ...]:
        """Every Retry-After field, unparsed."""
        return tuple(self.headers.get_list("retry-after"))


class HttpxChannel(httpx.AsyncHTTPTransport):
    """The connections to one target, opened through the address guard."""

    def __init__(self, target: Target, tls: ssl.SSLContext, resolve: Resolve) -> None:
        """Raises `httpx.InvalidURL` for a URL that cannot be used."""
        if fault := url_fault(target.url):
            raise httpx.InvalidURL(fault)
        super().__init__(verify=tls, trust_env=False)
        self._url = httpx.URL(target.url)
        self._connect_timeout = target.connect_timeout
        guard = Guard(target.allowed, encrypted=target.encrypted, resolve=resolve)
        self.connections = Connections(tls, GuardedBackend(guard))
        # httpx has no parameter for a custom pool or network backend.
        self._pool = self.connections

    def request(
        self,
        method: str,
        headers: Sequence[tuple[str, str]],
        total_timeout: float,
        *,
        path: str | None = None,
        content: bytes | None = None,
        trace: Trace | None = None,
    ) -> httpx.Request:
        """Return a request to the target's URL, or to `path` of its origin."""
        timeouts = dict.fromkeys(("pool", "read", "write"), total_timeout)
        timeouts["connect"] = min(self._connect_timeout, total_timeout)
        return httpx.Request(
            method,
            self._url if path is None else self._url.copy_with(raw_path=path.encode("ascii")),
            headers=list(headers),
            content=content,
            extensions={"timeout": timeouts} | ({} if trace is None else {"trace": trace}),
        )

    async def exchange(self, request: httpx.Request, received: Received) -> None:
        """Send `request` and fill `received` with its response, until the body limit.

        Raises `FAULTS`, `AddressRefusedError` and `ResolveError`.
        """
        response = await self.handle_async_request(request)
        try:
            received.status, received.headers = response.status_code, response.headers
            async for chunk in response.aiter_raw():
                received.body += chunk[: RESPONSE_BYTES_READ_MAX - len(received.body)]
                if len(received.body) >= RESPONSE_BYTES_READ_MAX:
                    break
        finally:
            # Closing a response whose body was not read to its end closes its connection too.
            await response.aclose()


def fault_text(error: Exception, total_timeout: float) -> str:
    """Describe one of `FAULTS` on one line, without any content of the response."""
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return f"no answer within {total_timeout:g} s"
    text = str(error)
    if isinstance(error, httpx.RemoteProtocolError):
        # After the colon it quotes the response, which fewer people may read than errors.
        text = text.partition(":")[0]
    return one_line(f"{name}: {text}" if text else name)
