"""uvicorn, the socket that it listens on, and the time limits of a connection.

uvicorn waits without a limit for the head of a request, and for a client that does not read. Enough
such connections would lock out everybody else."""

import asyncio
import socket
import sys

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dispatcher.api.app import application
from dispatcher.api.settings import ApiSettings
from dispatcher.operators.common.session import operator_connection
from sink.contract.exits import CommandError, ExitCode

IDLE_SECONDS = 15

STOP_SECONDS = 10

REQUESTS_MAX = 200
"""As many are answered at once; one more is told to come again (503)."""

HEADER_BYTES_MAX = 32_768


def run(settings: ApiSettings) -> None:
    """Serve until stopped; raises `CommandError` where that cannot begin."""
    settings.check()
    with operator_connection(settings.dsn):
        """The schema fits and the role may be taken; or one clear line before anything listens."""
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"listening on http://{shown}:{port}\n")
        sys.stderr.flush()
        server(settings).run(sockets=[listener])


def server(settings: ApiSettings) -> uvicorn.Server:
    """Return the server, which listens on the socket that `run` is given."""
    return uvicorn.Server(
        uvicorn.Config(
            application(settings),
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=settings.behind_proxy,
            limit_concurrency=REQUESTS_MAX,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            http=DeadlineProtocol,
            ws="none",
        )
    )


def _listening(settings: ApiSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise CommandError(
            f"nobody can listen on {settings.host}:{settings.port}:"
            f" {error.strerror or error}. Nothing was started; name a free port with --port.",
            ExitCode.USAGE,
        ) from None


HEAD_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of its head."""

TAKE_SECONDS = 30.0
"""How long a client may take nothing of what is written to it."""


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it; a connection that sends no request in time is closed."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Wait on, unless the whole head is there now."""
        super().data_received(data)
        if self._is_without_request():
            self._expect()
        else:
            self._forget()

    def on_response_complete(self) -> None:
        """Wait for the rest of a further request that has begun to come."""
        super().on_response_complete()
        if self._is_without_request() and self.conn.trailing_data[0]:
            self._expect()

    def pause_writing(self) -> None:
        """Wait for the client to take what is written; not for ever."""
        super().pause_writing()
        self._limit()

    def resume_writing(self) -> None:
        """Go on: the client takes it."""
        self._unstick()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close; what the client has not taken by then it does not take for ever."""
        super().timeout_keep_alive_handler()
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._forget()
        self._unstick()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _limit(self) -> None:
        if self._stuck is None:
            self._stuck = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def _unstick(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _give_up(self) -> None:
        self._late = None
        if self._is_without_request() and not self.transport.is_closing():
            self.transport.close()
            self._limit()

    def _is_without_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
