"""A TLS front before a test's Postgres, on a TCP port, as a server with `ssl = on` answers.

The Postgres of the tests listens on a Unix socket, where TLS is not spoken.
"""

import socket
import ssl
import struct
from contextlib import suppress
from threading import Thread
from typing import Self

import trustme
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.servers.postgres_proxy import connect_to

_SSL_REQUEST = struct.pack("!II", 8, 80877103)
_CHUNK = 65536
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


def _break(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
