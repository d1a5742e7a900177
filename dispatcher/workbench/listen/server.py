"""The HTTP server of `holdfast listen`.

It uses the standard library's server for access to the socket: web frameworks cannot cut a
connection between applying and answering. The limits are those of `VerifyDeliveries`: POST only, a
bounded body, and ten seconds to read it.
"""

import errno
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Event, Lock, Thread
from typing import Any

from holdfast.dispatcher.workbench.listen.listener import Listener, Reply
from holdfast.receiver.message.problem import Problem
from holdfast.receiver.message.receipt import Answer
from holdfast.receiver.middleware import BODY_SECONDS_MAX
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.exits import CommandError

IDLE_SECONDS = 60.0
POLL_SECONDS = 0.05
CHUNK_BYTES = 64 * 1024
BACKLOG = 512
_BODILESS = frozenset({204, 205, 304})


class Server(ThreadingMixIn, TCPServer):
    """Binds on construction; `start` begins to answer, `stop` shuts down gracefully."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = BACKLOG

    def __init__(self, host: str, port: int, path: str) -> None:
        """Bind the port (0: any free port); raises `CommandError`."""
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            reason = {
                errno.EADDRINUSE: f"port {port} on {host} is already in use",
                errno.EADDRNOTAVAIL: f"{host} is not an address of this machine",
                errno.EACCES: f"this user may not listen on port {port}",
            }.get(error.errno or 0, f"cannot listen on {host} port {port} ({error.strerror})")
            raise CommandError(
                f"{reason}. Nothing was started;"
                " choose another --port (0: any free port) or --host.",
                code="listen_failed",
            ) from None
        self.path = path
        self.listener: Listener | None = None
        self.stopping = Event()
        self.answered: Callable[[], None] = lambda: None
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._loop: Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def start(self, listener: Listener, answered: Callable[[], None]) -> None:
        """Answer with `listener`; `answered` is called after each reply."""
        self.listener, self.answered = listener, answered
        self._loop = Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), name="listen", daemon=True
        )
        self._loop.start()

    def stop(self) -> None:
        """Stop accepting, write pending replies without their delay, and close."""
        self.stopping.set()
        if self._loop is not None:
            self.shutdown()
            self._loop.join()
        with self._lock:
            for each in self._open:
                with suppress(OSError):  # already closed
                    each.shutdown(socket.SHUT_RD)
        self.server_close()

    def opened(self, connection: socket.socket) -> None:
        """Track a connection, so that `stop` does not wait for an idle one."""
        with self._lock:
            self._open.add(connection)
        if self.stopping.is_set():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)

    def closed(self, connection: socket.socket) -> None:
        """Stop tracking a connection."""
        with self._lock:
            self._open.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, such as a client that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    error_content_type = "text/plain"
    error_message_format = "%(code)d\n"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        with suppress(OSError):  # the client is gone
            super().finish()

    def handle_one_request(self) -> None:
        """Handle one request of any method."""
        try:
            self.connection.settimeout(IDLE_SECONDS)
            self.raw_requestline = self.rfile.readline(CHUNK_BYTES + 1)
            if len(self.raw_requestline) > CHUNK_BYTES:
                self.requestline = self.request_version = self.command = ""
                self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
                return
            if not self.raw_requestline:
                self.close_connection = True
                return
            if self.parse_request():
                self._respond()
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the listener shows arrivals."""

    def _respond(self) -> None:
        if self.path.partition("?")[0] != self.server.path:
            self.close_connection = True
            hint = f"send deliveries to {self.server.path}"
            self._write(Problem(404, "not_found", hint).answer())
            return
        if self.command != "POST":
            self.close_connection = True
            self._write(
                Problem(405, "method_not_allowed", "deliveries are sent with POST").answer()
            )
            return
        reply = self._reply()
        if reply is None:
            self.close_connection = True
            return
        self.server.stopping.wait(reply.wait_seconds)
        listener = _of(self.server)
        if reply.answer is None:
            self.close_connection = True
        elif self._hung_up():
            self.close_connection = True
            listener.hung_up(reply.arrival)
        else:
            try:
                self._write(reply.answer)
            except OSError:
                self.close_connection = True
                listener.hung_up(reply.arrival)
        self.server.answered()

    def _reply(self) -> Reply | None:
        """Read the request; None if the sender disconnected before its end."""
        listener = _of(self.server)
        lengths = self.headers.get_all("content-length", [])
        if self.headers.get_all("transfer-encoding") or len(lengths) != 1:
            self.close_connection = True
            return listener.refuse(
                Problem(411, "length_required", "a delivery must have one Content-Length header"), 0
            )
        text = lengths[0].strip()
        if not (text.isascii() and text.isdigit()):
            self.close_connection = True
            return listener.refuse(Problem(400, "bad_length", "Content-Length is not a number"), 0)
        if len(text) > 9 or int(text) > BODY_BYTES_MAX:
            self.close_connection = True
            too_large = f"the limit for a body is {BODY_BYTES_MAX} bytes"
            return listener.refuse(Problem(413, "body_too_large", too_large), 0)
        body = bytearray()
        if not self._read(body, int(text)):
            self.close_connection = True
            slow = f"the body was incomplete after {BODY_SECONDS_MAX:g} s"
            return listener.refuse(Problem(408, "slow_body", slow), len(body))
        if len(body) < int(text):
            return None
        headers = [
            (name.encode("latin-1"), str(value).strip(" \t").encode("latin-1", "replace"))
            for name, value in self.headers.raw_items()
        ]
        return listener.receive(headers, bytes(body))

    def _read(self, body: bytearray, size: int) -> bool:
        """Read `size` bytes, or fewer if the sender disconnects; False if it is too slow."""
        deadline = time.monotonic() + BODY_SECONDS_MAX
        while len(body) < size:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self.connection.settimeout(remaining)
            try:
                piece = self.rfile.read1(min(CHUNK_BYTES, size - len(body)))
            except TimeoutError:
                return False
            if not piece:
                break
            body += piece
        return True

    def _hung_up(self) -> bool:
        """Return whether the sender closed the connection during the delay."""
        if self.server.stopping.is_set():
            return False  # `stop` closed it for reading
        try:
            self.connection.setblocking(False)
            piece: bytes = self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.connection.settimeout(IDLE_SECONDS)
        return not piece

    def _write(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        bodiless = answer.status in _BODILESS
        if not bodiless or answer.status == 205:
            self.send_header("content-length", "0" if bodiless else str(len(answer.body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"" if bodiless else answer.body)


def _of(server: Server) -> Listener:
    if server.listener is None:
        raise AssertionError("a server answers only after start()")
    return server.listener
