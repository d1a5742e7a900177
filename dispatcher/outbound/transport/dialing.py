"""Opens connections to one target, only to addresses that the guard permits.

A name is resolved and judged at most every 30 s, however many connections are opened, in a task
that no attempt's end cancels. While that fails or takes long, the addresses judged last stay in
use. The judged address is the one that is connected to; the certificate is checked against the name
of the URL.
"""

import asyncio
import socket
import ssl
from typing import cast

import httpx

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.guard import Guard, ResolveError, host_and_port
from holdfast.dispatcher.outbound.transport.http_connection import Connection
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.failpoints import failpoint

RESOLVED_SECONDS = 30.0
"""How long addresses are used before the name is resolved and judged again."""


RENEWAL_PATIENCE_SECONDS = 1.0
"""How long a request with addresses waits for their renewal before it uses them once more."""


class NotConnectedError(Exception):
    """No address of the target could be connected to in time."""


class Dialer:
    """Opens the connections of one target."""

    def __init__(
        self, target: Target, url: httpx.URL, guard: Guard, tls: ssl.SSLContext | None
    ) -> None:
        """`tls` is given for https:// only."""
        self.addresses: tuple[str, ...] = ()
        """The addresses that may be connected to, as judged last."""
        self._target = target
        self._host, self._port = host_and_port(url)
        self._guard = guard
        self._tls = tls
        self._next_address = 0
        self._fresh_until = 0.0
        self._renewal: asyncio.Task[None] | None = None

    @property
    def fresh(self) -> bool:
        """Whether the addresses may be used without resolving the name again."""
        return seconds() < self._fresh_until

    async def look_up(self) -> None:
        """Resolve and judge the name, if that is due.

        Raises `ResolveError` and `AddressRefusedError`.
        """
        if self.fresh:
            return
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
            # Every request that waits may be gone when it fails.
            self._renewal.add_done_callback(lambda done: done.cancelled() or done.exception())
        renewal = self._renewal
        patience = RENEWAL_PATIENCE_SECONDS if self.addresses else None
        ended, _ = await asyncio.wait({renewal}, timeout=patience)
        if renewal.cancelled():
            raise ResolveError(f"the look-up of {self._host} was abandoned")
        if ended:
            await renewal
        else:
            self._fresh_until = seconds() + RESOLVED_SECONDS

    async def close(self) -> None:
        """Abandon a renewal that is under way."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})

    async def _renew(self) -> None:
        limit = min(self._target.connect_timeout, self._target.total_timeout)
        try:
            addresses = await self._guard.addresses(self._host, self._port, limit)
        except ResolveError:
            if not self.addresses:
                raise
        except BaseException:
            # Who did not wait for it has declared the addresses fresh.
            self.addresses, self._fresh_until = (), 0.0
            raise
        else:
            self.addresses, self._next_address = tuple(addresses), 0
        finally:
            self._renewal = None
        self._fresh_until = seconds() + RESOLVED_SECONDS

    async def dial(self) -> Connection:
        """Connect to the first address that accepts, within the connect timeout.

        The next call starts at that address; after the last has failed, the name is resolved again.
        Raises `NotConnectedError`.
        """
        end = seconds() + self._target.connect_timeout
        addresses, fault = self.addresses[self._next_address :], "no address"
        for place, address in enumerate(addresses):
            # An address that drops packets must leave time for the addresses after it.
            share = max(0.001, (end - seconds()) / (len(addresses) - place))
            try:
                async with asyncio.timeout(share):
                    return await self._open(address)
            except (OSError, ValueError) as error:
                fault = f"no connection within {share:g} s" if _is_late(error) else str(error)
                self._failed(address)
        raise NotConnectedError(f"{self._host}: {fault}")

    def _failed(self, address: str) -> None:
        if address in self.addresses:
            self._next_address = max(self._next_address, self.addresses.index(address) + 1)
        if self._next_address >= len(self.addresses):
            self._next_address, self._fresh_until = 0, 0.0

    async def _open(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        failpoint("D5")
        ((family, kind, protocol, _, place),) = socket.getaddrinfo(
            address, self._port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        opened = socket.socket(family, kind, protocol)
        connection = Connection(address)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(opened, place)
            transport, _ = await loop.create_connection(lambda: connection, sock=opened)
            if self._tls is not None:
                failpoint("D6")
                # Two steps, because `create_connection` does not expose the transport below TLS.
                encrypted = await loop.start_tls(
                    transport,
                    connection,
                    self._tls,
                    server_hostname=self._host,
                    ssl_handshake_timeout=self._target.connect_timeout,
                )
                connection.encrypted(cast("asyncio.Transport", encrypted))
        except BaseException:
            # Its transport must end before the descriptor is closed and its number reused.
            connection.abort()
            opened.close()
            raise
        return connection


def _is_late(error: Exception) -> bool:
    return isinstance(error, TimeoutError) and not str(error)
