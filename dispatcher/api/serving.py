"""uvicorn, the socket that it listens on, and the time limits of a connection.

uvicorn waits without a limit for the head of a request, and for a client that does not read. Enough
such connections would lock out everybody else, as would its own limit of connections, which refuses
the newest: a new one takes the place of the one that has kept this server waiting longest."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.shared.errors import UnservedCommandError
from holdfast.sink.contract.exits import CommandError, ExitCode

IDLE_SECONDS = 15

STOP_SECONDS = 10

WATCH_SECONDS = 5.0
"""How often it is read whether the database serves this version."""

CONNECTIONS_MAX = 800
"""Maximum number of connections, below the usual limit of 1,024 open files."""

HEADER_BYTES_MAX = 32_768


def run(settings: ApiSettings) -> None:
    """Serve until stopped; raises `CommandError` if it cannot start.

    Raises `UnservedCommandError` once the database does not serve this version.
    """
    settings.check()
    with operator_connection(settings.dsn):
        """Fails with one clear message if the schema or the role does not fit."""
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"listening on http://{shown}:{port}\n")
        sys.stderr.flush()
        running = server(settings)
        with _watched(running) as misfits:
            running.run(sockets=[listener])
    if misfits:
        raise UnservedCommandError(
            misfits[0],
            "the server stopped: ",
            "Requests that had begun were answered; no change was lost.",
        )


@contextmanager
def _watched(running: uvicorn.Server) -> Iterator[list[str]]:
    """Stop the server once the database does not serve this version; yields the reason then.

    Its connections would continue with statements of a schema that is gone.
    """
    misfits: list[str] = []
    ended = Event()
    pool: OperatorPool = running.config.app.state.pool  # type: ignore[union-attr]

    def watch() -> None:
        while not misfits and not ended.wait(WATCH_SECONDS):
            if misfit := pool.misfit():
                misfits.append(misfit)
                running.should_exit = True

    # A database that accepts everything and never answers does not keep the process from ending.
    thread = Thread(target=watch, name="schema watch", daemon=True)
    thread.start()
    try:
        yield misfits
    finally:
        ended.set()
        thread.join(WATCH_SECONDS)


def server(settings: ApiSettings) -> uvicorn.Server:
    """Return the server. It listens on the socket passed to its `run`."""
    return uvicorn.Server(
        uvicorn.Config(
            application(settings),
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=settings.behind_proxy,
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
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}."
            " Nothing was started; choose a free port with --port.",
            ExitCode.USAGE,
            code="cannot_listen",
        ) from None


HEAD_SECONDS = 10.0
"""Time limit from the connection, or from the first byte of a further request, to the end of its
head.
"""

TAKE_SECONDS = 30.0
"""How long a client may read nothing of its response."""


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, with time limits for request heads and for writes."""

    _since = 0.0
    """When the server began to wait for this client.

    uvloop's clock counts whole milliseconds and stands still within one iteration: connections that
    came together would have begun at the same time.
    """

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request's head; make room if there are too many."""
        super().connection_made(transport)
        self._since = monotonic()
        self._expect()
        if len(self.connections) > CONNECTIONS_MAX:
            others = [each for each in self.connections if isinstance(each, DeadlineProtocol)]
            waiting = [each for each in others if each.is_waiting() and each is not self]
            if waiting:
                min(waiting, key=lambda each: each._since).transport.abort()  # noqa: SLF001 - ours

    def data_received(self, data: bytes) -> None:
        """Stop the time limit once the whole head has arrived."""
        super().data_received(data)
        if self._is_without_request():
            self._expect()
        else:
            self._forget()

    def on_response_complete(self) -> None:
        """Start the time limit of a further request whose head has begun to arrive."""
        super().on_response_complete()
        self._since = monotonic()
        if self._is_without_request() and self.conn.trailing_data[0]:
            self._expect()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read its response."""
        super().pause_writing()
        self._limit()

    def resume_writing(self) -> None:
        """Stop the time limit: the client reads."""
        self._unstick()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection, with a time limit for what is not read yet."""
        super().timeout_keep_alive_handler()
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all time limits."""
        self._forget()
        self._unstick()
        super().connection_lost(exc)

    def is_waiting(self) -> bool:
        """Return whether the server waits for a request of this client, or for the rest of one."""
        unfinished = self._is_without_request() or self.cycle.more_body
        return unfinished and not self.transport.is_closing()

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
