"""How httpx opens a connection: only to addresses that the guard permits."""

import asyncio
import ssl
from collections.abc import Iterable

import httpcore

from holdfast.dispatcher.outbound.transport.guard import Guard
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
        left = len(addresses)
        while True:
            # An address that drops packets must leave time for the addresses after it.
            share = max(0.001, (end - loop.time()) / left) if timeout else None
            try:
                stream = await self._network.connect_tcp(
                    addresses[-left], port, share, local_address, socket_options
                )
                return _Handshake(stream) if self._guard.encrypted else stream
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                left -= 1
                if not left:
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
