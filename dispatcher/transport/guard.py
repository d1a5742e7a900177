"""The address guard: resolve once, judge every address, connect to a judged one.

It sits where the connection is made, so that a name cannot answer with a public address when it is
checked and with a private one when it is used. The TLS handshake happens above it, with the name
of the URL, so certificates are verified as usual.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable, Sequence

import httpcore

from dispatcher.core.address import Network, is_allowed, refusal

ADDRESSES_MAX = 8
"""How many addresses of one name are considered."""


class AddressRefusedError(Exception):
    """No address of the host may be connected to."""


class ResolveError(Exception):
    """The host's name has no address, or the resolver did not answer."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens the TCP connections of one endpoint."""

    def __init__(self, allowed: Sequence[Network], *, encrypted: bool) -> None:
        self._allowed = tuple(allowed)
        self._encrypted = encrypted
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of `host` that may be and can be connected to.

        `timeout` covers the resolver and all addresses together. Raises `AddressRefusedError`,
        `ResolveError`, or httpcore's own errors of connecting.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout or 0)
        addresses = self._permitted(await _resolve(host, port, timeout))
        for left in range(len(addresses), 0, -1):
            # An address that swallows packets leaves a share of the time to those behind it.
            share = max(0.001, (end - loop.time()) / left) if timeout else None
            try:
                stream = await self._network.connect_tcp(
                    addresses[-left], port, share, local_address, socket_options
                )
                return _Handshake(stream) if self._encrypted else stream
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
        raise ResolveError(f"{host} has no address")

    def _permitted(self, addresses: Sequence[str]) -> list[str]:
        refusals = []
        permitted = []
        for address in addresses:
            reason = refusal(address, self._allowed)
            if reason is None and not self._encrypted and not is_allowed(address, self._allowed):
                reason = f"plain http:// to {address} needs an allow_cidrs entry of the endpoint"
            if reason is None:
                permitted.append(address)
            else:
                refusals.append(reason)
        if refusals and not permitted:
            raise AddressRefusedError("; ".join(refusals))
        return permitted


class _Handshake(httpcore.AsyncNetworkStream):
    """A connection that is about to be encrypted, and is closed when that is cancelled.

    httpcore closes it after an error but not after a cancellation, which is how a deadline ends it.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
    ) -> httpcore.AsyncNetworkStream:
        """Encrypt the connection; the name of the URL is what the certificate must be for."""
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


async def _resolve(host: str, port: int, seconds: float | None) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise ResolveError(f"{host} was not resolved within {seconds:g} s") from None
    except (OSError, UnicodeError) as error:
        raise ResolveError(f"{host} cannot be resolved: {error}") from None
    addresses = [str(info[4][0]) for info in found]
    return list(dict.fromkeys(addresses))[:ADDRESSES_MAX]
