"""What the asyncio engine keeps for each target: idle connections and the start of a request."""

import asyncio
from contextlib import suppress

import httpx

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.transport.connections import KEEP_ALIVE_SECONDS
from holdfast.dispatcher.outbound.transport.dialing import Dialer
from holdfast.dispatcher.outbound.transport.guard import AddressRefusedError, ResolveError
from holdfast.dispatcher.outbound.transport.http_connection import Connection
from holdfast.dispatcher.shared.clock import seconds


class Channel:
    """The connections to one target: a stack of idle ones, no queue."""

    def __init__(self, url: httpx.URL, dialer: Dialer) -> None:
        """`dialer` opens the connections to the host of `url`."""
        self.in_use = 0
        """Number of requests in progress."""
        self.dialer = dialer
        path, host = url.raw_path.decode("ascii"), url.netloc.decode("ascii")
        self._start = f"POST {path} HTTP/1.1\r\nhost: {host}\r\n"
        self._idle: list[Connection] = []
        self._closed = False
        self._preparing: asyncio.Task[None] | None = None

    def head(self, request: Request) -> bytes:
        """Return the request line and the header fields.

        Raises `ValueError` for a field with a control character or beyond ASCII.
        """
        fields = [f"{name}: {value}" for name, value in request.headers]
        if not "".join(fields).isprintable():
            raise ValueError("the request cannot be written: a control character in its headers")
        lines = "\r\n".join(fields)
        try:
            return f"{self._start}{lines}\r\ncontent-length: {len(request.body)}\r\n\r\n".encode(
                "ascii"
            )
        except UnicodeEncodeError:
            raise ValueError("the request cannot be written: its headers are not ASCII") from None

    def idle(self) -> Connection | None:
        """Return the usable connection that was used last, or None; the others can expire."""
        if not self.dialer.fresh:
            return None
        expired = seconds() - KEEP_ALIVE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if (
                connection.idle_since > expired
                and connection.address in self.dialer.addresses
                and connection.is_quiet()
            ):
                return connection
            connection.abort()
        return None

    async def opened(self) -> Connection:
        """Return a connection, after resolving the name if that is due."""
        await self.dialer.look_up()
        return self.idle() or await self.dialer.dial()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if connection.usable and not self._closed:
            connection.idle_since = seconds()
            self._idle.append(connection)
        else:
            connection.abort()

    def drop(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().abort()

    def close_expired(self) -> None:
        """Close connections that were idle for too long or that the other side closed."""
        expired = seconds() - KEEP_ALIVE_SECONDS
        for connection in self._idle:
            if connection.idle_since <= expired:
                connection.abort()
        self._idle = [connection for connection in self._idle if connection.usable]

    def prepare(self) -> None:
        """Begin to resolve the name, once; a failure is reported by the next request."""
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        with suppress(ResolveError, AddressRefusedError):
            await self.dialer.look_up()

    async def close(self) -> None:
        """Close every connection; one with a request in progress closes when that ends."""
        self._closed = True
        self.drop()
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        await self.dialer.close()
