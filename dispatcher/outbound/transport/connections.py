"""The connection pool of the httpx engine for one target: a stack of idle connections, no queue.

httpcore's own pool scans every connection for every request, which at 64 connections costs ten
times the request itself. The dispatcher already limits concurrent requests, so this pool only takes
an idle connection or opens one.

A connection is reused only after a 2xx that arrived after the whole request was sent: a receiver
that answers without reading takes the unread rest for the start of the next request, and its answer
to that would be recorded as the next request's. httpcore would reuse it after any status.
"""

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpcore

from holdfast.dispatcher.outbound.transport.kernel import unacknowledged

_SUCCESS, _REDIRECTION = 200, 300

KEEP_ALIVE_SECONDS = 15.0
"""How long an idle connection is kept: less than most servers do, so few close as we write."""


class Connections(httpcore.AsyncConnectionPool):
    """Serves requests to a single origin; each has a connection to itself."""

    def __init__(self, tls: ssl.SSLContext, network: httpcore.AsyncNetworkBackend) -> None:
        super().__init__()
        self._tls = tls
        self._network = network
        self._idle: list[httpcore.AsyncHTTPConnection] = []
        self._busy: set[httpcore.AsyncHTTPConnection] = set()
        self._dropped: list[httpcore.AsyncHTTPConnection] = []

    @property
    def in_use(self) -> bool:
        """Whether a request is in progress."""
        return bool(self._busy)

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send `request`; the connection comes back when the response is closed."""
        connection = await self._take() or httpcore.AsyncHTTPConnection(
            origin=request.url.origin,
            ssl_context=self._tls,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
            network_backend=self._network,
        )
        self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._busy.discard(connection)
            await connection.aclose()
            raise
        stream: httpcore.AsyncNetworkStream = response.extensions["network_stream"]
        # httpcore reads once the loop's transport is empty; the kernel may still hold bytes.
        sent = not unacknowledged(stream.get_extra_info("socket").fileno())
        keeps = _SUCCESS <= response.status < _REDIRECTION and sent
        return httpcore.Response(
            status=response.status,
            headers=response.headers,
            content=_Body(self, connection, response, keeps=keeps),
            extensions=response.extensions,
        )

    async def give_back(self, connection: httpcore.AsyncHTTPConnection, *, keeps: bool) -> None:
        """Keep a connection whose response was read to its end; close any other.

        `keeps` is whether status and time of the response permit reuse.
        """
        self._busy.discard(connection)
        if keeps and connection.is_idle() and not _surplus(connection):
            self._idle.append(connection)
        else:
            await connection.aclose()

    def drop(self) -> None:
        """Stop using every idle connection; `close_expired` closes them."""
        self._dropped += self._idle
        self._idle = []

    async def close_expired(self) -> None:
        """Close connections that were dropped, idle for too long, or closed by the other side."""
        expired = [connection for connection in self._idle if connection.has_expired()]
        self._idle = [connection for connection in self._idle if connection not in expired]
        dropped, self._dropped = self._dropped, []
        for connection in (*expired, *dropped):
            await connection.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *self._dropped, *self._busy):
            await connection.aclose()
        self._idle.clear()
        self._dropped.clear()
        self._busy.clear()

    async def _take(self) -> httpcore.AsyncHTTPConnection | None:
        while self._idle:
            connection = self._idle.pop()  # the one used last, so that the others can expire
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None


class _Body:
    """The body of a response; closing it gives its connection back."""

    def __init__(
        self,
        owner: Connections,
        connection: httpcore.AsyncHTTPConnection,
        response: httpcore.Response,
        *,
        keeps: bool,
    ) -> None:
        self._owner = owner
        self._keeps = keeps
        self._connection = connection
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._response.aclose()
        finally:
            await self._owner.give_back(self._connection, keeps=self._keeps)


def _surplus(connection: httpcore.AsyncHTTPConnection) -> bool:
    """Return whether bytes arrived after the response: they must not answer another request.

    httpcore would take them for the next response, and has no public way to ask for them.
    """
    http: Any = connection._connection  # noqa: SLF001
    if http._h11_state.trailing_data[0]:  # noqa: SLF001
        return True
    tls: ssl.SSLObject | None = http._network_stream.get_extra_info("ssl_object")  # noqa: SLF001
    if tls is None:
        return False
    try:
        tls.read(1)  # further TLS records that arrived with the response
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError:
        return True
    return True
