"""The connections to one target: a stack of idle ones, no queue.

httpcore's own pool looks at every connection for every request, which at 64 connections costs
ten times the request itself. The dispatcher already limits how many requests run at once, so all
that is left to do is to take an idle connection or to open one.

One carries another request behind a 2xx that came after the whole request had left: a receiver that
answers without reading takes the rest for the beginning of the next request, and its answer to that
would be booked as the next one's. httpcore keeps it whatever the status is.
"""

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpcore

from dispatcher.outbound.transport.kernel import unacknowledged

_SUCCESS, _REDIRECTION = 200, 300

KEEP_ALIVE_SECONDS = 15.0
"""How long an idle connection is kept; servers mostly keep it longer, so few close as we write."""


class Connections(httpcore.AsyncConnectionPool):
    """Serves requests to a single origin, each on a connection of its own."""

    def __init__(self, tls: ssl.SSLContext, network: httpcore.AsyncNetworkBackend) -> None:
        super().__init__()
        self._tls = tls
        self._network = network
        self._idle: list[httpcore.AsyncHTTPConnection] = []
        self._busy: set[httpcore.AsyncHTTPConnection] = set()
        self._dropped: list[httpcore.AsyncHTTPConnection] = []

    @property
    def in_use(self) -> bool:
        """Whether a request is under way."""
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
        # httpcore reads when the loop's transport holds nothing any more; the kernel may still.
        sent = not unacknowledged(stream.get_extra_info("socket").fileno())
        keeps = _SUCCESS <= response.status < _REDIRECTION and sent
        return httpcore.Response(
            status=response.status,
            headers=response.headers,
            content=_Body(self, connection, response, keeps=keeps),
            extensions=response.extensions,
        )

    async def give_back(self, connection: httpcore.AsyncHTTPConnection, *, keeps: bool) -> None:
        """Keep a connection whose response was read to its end, and close any other.

        `keeps` says that status and time of the response allow for it.
        """
        self._busy.discard(connection)
        if keeps and connection.is_idle() and not _surplus(connection):
            self._idle.append(connection)
        else:
            await connection.aclose()

    def drop(self) -> None:
        """Use no idle connection again; `close_expired` closes them."""
        self._dropped += self._idle
        self._idle = []

    async def close_expired(self) -> None:
        """Close what was dropped, has been idle for too long, or was closed by the other side."""
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
            connection = self._idle.pop()  # the one used last: the others may expire
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
    """Return whether anything was read behind the response: it must not answer another request.

    httpcore has no public way to it, and would take it for the next response.
    """
    http: Any = connection._connection  # noqa: SLF001
    if http._h11_state.trailing_data[0]:  # noqa: SLF001
        return True
    tls: ssl.SSLObject | None = http._network_stream.get_extra_info("ssl_object")  # noqa: SLF001
    if tls is None:
        return False
    try:
        tls.read(1)  # further records that came along with the response
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError:
        return True
    return True
