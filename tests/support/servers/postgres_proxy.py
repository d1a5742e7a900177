"""A proxy between libpq and Postgres that loses a line at the worst moment.

It listens on a Unix socket, as a server on that folder would, and passes bytes on until the client
sends its n-th COMMIT. What it does then is the test's choice; after that it is honest. Or until the
test says `swallow`: the lines of that moment stay open and carry nothing any more.
"""

import shutil
import socket
import ssl
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from threading import Event, Thread
from typing import Self

import trustme
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 65536
_SENT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
_ANSWERED = b"C\x00\x00\x00\x0bCOMMIT\x00"


class Fault(Enum):
    """What happens to the COMMIT."""

    COMMIT_LOST = auto()
    """It never reaches the server, and the line breaks."""

    ANSWER_LOST = auto()
    """The server commits, and the line breaks before the client hears of it."""

    ANSWER_LOST_AND_SERVER_GONE = auto()
    """The same, and nobody can connect any more."""

    SILENCE = auto()
    """The server commits; the line stays open and nothing comes back."""


class PostgresProxy:
    """`with PostgresProxy(dsn, fault, 2) as proxy:`; the 2nd COMMIT through `proxy.dsn` fails."""

    def __init__(self, dsn: str, fault: Fault | None = None, number: int = 0) -> None:
        self._target = conninfo_to_dict(dsn)
        self._fault = fault
        self._until = number
        self._armed = False
        self._folder = Path(tempfile.mkdtemp(prefix="hf"))
        self.dsn = make_conninfo(dsn, host=str(self._folder), port=5432, sslmode="disable")
        self.struck = Event()
        """Set when the fault has happened."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._lines: list[socket.socket] = []
        self._swallowing: set[socket.socket] = set()
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self._folder / _SOCKET))
        self._listener.listen()
        self._spawn(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        _break(self._listener)
        for line in self._lines:
            _break(line)
        for thread in self._threads:
            thread.join()
        for line in (*self._lines, self._listener):
            line.close()
        shutil.rmtree(self._folder)

    def strike(self, number: int = 1, fault: Fault | None = None) -> None:
        """Let the n-th COMMIT from now fail, with the proxy's own fault or another one."""
        self._fault = fault or self._fault
        self._until = number

    def swallow(self) -> None:
        """Let the lines of this moment take every byte and pass none on, in both directions.

        Neither side learns that the other is gone: not even a close gets through.
        """
        self._swallowing.update(self._lines)
        self.struck.set()

    def give_up(self) -> None:
        """Break the swallowed lines, as keepalives do in the end."""
        for line in self._swallowing:
            _break(line)

    def _spawn(self, work: object, *values: object) -> None:
        thread = Thread(target=work, args=values, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = connect_to(self._target)
                self._lines += [client, server]
                self._spawn(self._upstream, client, server)
                self._spawn(self._downstream, client, server)

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                if client in self._swallowing:
                    continue
                self._until -= _SENT in data
                self._armed = _SENT in data and self._until == 0
                if self._armed and self._fault is Fault.COMMIT_LOST:
                    self.struck.set()
                    break
                server.sendall(data)
        self._end(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                if server in self._swallowing:
                    continue
                if not self._armed or _ANSWERED not in data:
                    client.sendall(data)
                    continue
                # The server said that it committed, and nobody will hear of it.
                self._armed = False
                self.struck.set()
                if self._fault is Fault.SILENCE:
                    continue
                if self._fault is Fault.ANSWER_LOST_AND_SERVER_GONE:
                    _break(self._listener)
                break
        self._end(client, server)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        if client not in self._swallowing:
            _break(client)
            _break(server)


def connect_to(target: Mapping[str, object]) -> socket.socket:
    """Open a line to the server that a DSN's keywords name."""
    host = str(target.get("host") or "/tmp")  # noqa: S108 (libpq's default folder)
    port = int(str(target.get("port") or 5432))
    if host.startswith("/"):
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
    else:
        server = socket.create_connection((host, port))
    return server


def _break(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


_SSL_REQUEST = struct.pack("!II", 8, 80877103)

_REFUSAL = b"SFATAL\x00C28000\x00Mno pg_hba.conf entry for this host, no encryption\x00\x00"


class TlsFront:
    """`with TlsFront(dsn, authority) as front:`; `front.dsn` speaks TLS with a host of `name`.

    Without an authority it has no TLS, and says so. A client that asks for none is refused where
    there is some.
    """

    def __init__(
        self, dsn: str, authority: trustme.CA | None = None, name: str = "localhost"
    ) -> None:
        self._target = conninfo_to_dict(dsn)
        self._context: ssl.SSLContext | None = None
        if authority is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[socket.socket] = []
        self._threads: list[Thread] = []
        port = self._listener.getsockname()[1]
        self.dsn = make_conninfo(dsn, host="localhost", hostaddr="127.0.0.1", port=port)

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        for line in (self._listener, *self._lines):
            _break(line)
        for thread in self._threads:
            thread.join()
        for line in (self._listener, *self._lines):
            line.close()

    def _spawn(self, work: object, *values: object) -> None:
        thread = Thread(target=work, args=values, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._lines.append(client)
                self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            first = client.recv(_CHUNK)
            if first == _SSL_REQUEST and self._context:
                client.sendall(b"S")
                client = self._context.wrap_socket(client, server_side=True)
                self._lines.append(client)
                first = b""
            elif first == _SSL_REQUEST:
                client.sendall(b"N")
                first = b""
            elif self._context:
                client.sendall(b"E" + struct.pack("!I", len(_REFUSAL) + 4) + _REFUSAL)
                return
            self._relay(client, first)

    def _relay(self, client: socket.socket, first: bytes) -> None:
        server = connect_to(self._target)
        self._lines.append(server)
        server.sendall(first)
        self._spawn(_pass_on, server, client)
        _pass_on(client, server)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    _break(source)
    _break(target)
