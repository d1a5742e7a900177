"""The asyncio engine: connections on the dispatcher's own event loop, parsed by llhttp.

It is the fast one because a request never leaves the thread that settles it: a client with a
thread of its own has to wait for the interpreter lock at each answer.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import httpx

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target, url_fault
from holdfast.dispatcher.outbound.transport.certificates import (
    UnusablePemError,
    authorities,
    extend,
    has_certificates,
)
from holdfast.dispatcher.outbound.transport.connections import KEEP_ALIVE_SECONDS
from holdfast.dispatcher.outbound.transport.dialing import Dialer, NotConnectedError
from holdfast.dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Guard,
    Resolve,
    ResolveError,
)
from holdfast.dispatcher.outbound.transport.http_connection import TIME_IS_UP, Connection, Reply
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
from holdfast.sink.contract.failpoints import ENVIRONMENT, failpoint


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


_NONE = (None, None)


class AsyncioTransport:
    """The transport of a dispatcher: separate connections for each target."""

    def __init__(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> None:
        """`ca_file` holds further certificate authorities to trust, as PEM.

        Raises `OSError` when it cannot be read and `UnusablePemError` when it holds none.
        """
        self._ca_pem = None if ca_file is None else ca_file.read_bytes()
        self._tls = authorities(self._ca_pem)
        self._resolve = resolve
        self._channels: dict[Target, Channel] = {}
        # Comparing targets compares every field, which takes as long as building a request.
        self._newest: dict[int, tuple[Target, Channel]] = {}
        self._passed: Callable[[str], None] | None = (
            failpoint if os.environ.get(ENVIRONMENT) else None
        )

    def fault(self, target: Target) -> str | None:
        """Return why the target's URL or certificates cannot be used, or None."""
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
            newest, channel = self._newest.get(target.endpoint_id, _NONE)
            if newest is not target or channel is None:
                channel = self._channel(target)
            head = channel.head(request)
        except (httpx.InvalidURL, ValueError) as error:
            of_endpoint = isinstance(error, httpx.InvalidURL | UnusablePemError)
            return Refused(one_line(str(error)), of_endpoint=of_endpoint)
        except OSError as error:  # no file descriptor left to load a certificate with
            return NotSent(one_line(str(error)))
        channel.in_use += 1
        try:
            connection = channel.idle()
            if connection is None:
                async with asyncio.timeout(target.total_timeout):
                    connection = await channel.opened()
            if not connection.usable:
                return NotSent("the receiver closed the connection before the request")
            remaining = end - seconds()
            if remaining <= 0:
                channel.give_back(connection)
                return NotSent(too_late(target.total_timeout))
            progress.sent = True
            reply = await connection.exchange(head, request.body, remaining, self._passed)
            channel.give_back(connection)
        except (NotConnectedError, ResolveError) as error:
            return NotSent(one_line(str(error)))
        except AddressRefusedError as error:
            return Refused(one_line(str(error)), of_endpoint=True)
        except TimeoutError:
            return NotSent(f"no connection within {target.total_timeout:g} s")
        finally:
            channel.in_use -= 1
        if self._passed is not None and reply.status is not None:
            self._passed("D9")
        return _answer(reply, target.total_timeout)

    async def retain(self, targets: Collection[Target]) -> None:
        """Close the connections of targets that are not in `targets` and not in use any more.

        Begins to resolve the names of the others, so that no request has to wait for that.
        """
        retained = set(targets)
        gone = {target: each for target, each in self._channels.items() if target not in retained}
        for target, channel in gone.items():
            if not channel.in_use:
                self._newest.pop(target.endpoint_id, None)
                self._channels.pop(target, None)
                await channel.close()
        for channel in tuple(self._channels.values()):
            channel.prepare()
            channel.close_expired()

    def drop(self, target: Target) -> None:
        """Close the idle connections to `target`; see `Transport.drop`."""
        channel = self._channels.get(target)
        if channel is not None:
            channel.drop()

    async def close(self) -> None:
        """Close every connection."""
        self._newest.clear()
        while self._channels:
            await self._channels.popitem()[1].close()
        await asyncio.sleep(0)  # one iteration of the loop, in which they close

    def _channel(self, target: Target) -> Channel:
        channel = self._channels.get(target)
        if channel is None:
            if fault := url_fault(target.url):
                raise httpx.InvalidURL(fault)
            tls = self._tls
            if has_certificates(target):
                tls = extend(authorities(self._ca_pem), target)
            url = httpx.URL(target.url)
            guard = Guard(target.allowed, encrypted=target.encrypted, resolve=self._resolve)
            dialer = Dialer(target, url, guard, tls if target.encrypted else None)
            channel = self._channels[target] = Channel(url, dialer)
        self._newest[target.endpoint_id] = (target, channel)
        return channel


def _answer(reply: Reply, total_timeout: float) -> Answer:
    """Return the answer: a status line makes it a response, even if the body is incomplete."""
    if reply.status is None:
        is_late = reply.fault is TIME_IS_UP
        return NoAnswer(
            f"no answer within {total_timeout:g} s" if is_late else one_line(reply.fault)
        )
    return Response(reply.status, reply.retry_after, reply.body, reply.key_window)
