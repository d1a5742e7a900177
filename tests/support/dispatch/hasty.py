"""A receiver that answers when it has read the head of a request, and leaves the body unread.

What it left unread it takes for the beginning of the next request, as a server does that neither
drains a body nor closes the connection (RFC 9112, section 9.3, demands one of the two).
"""

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from tests.support.dispatch.webhooks import response

LINE_BYTES_MAX = 65_536
_CHUNK = 4_096
_WINDOW = 4_096
_HEAD = re.compile(rb"POST [^ \r\n]+ HTTP/1\.1\r\n(?:[^\r\n]+\r\n)*\r\n")


class HastyReceiver:
    """Answers its first request with `first` and every other one with 200."""

    def __init__(self, first: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._first = first
        self._tls = tls
        self.heads = 0
        """How many requests it has seen the head of."""
        self.connections = 0
        self.goes_on = Event()
        """Until this is set it reads nothing behind the first head."""
        self._listener = socket.socket()
        # Unread bytes fill a small window; the rest stays with the sender.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._lines: list[socket.socket] = []
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Where it listens."""
        port = self._listener.getsockname()[1]
        return f"https://localhost:{port}/" if self._tls else f"http://127.0.0.1:{port}/"

    def close(self) -> None:
        """End, with every connection."""
        self.goes_on.set()
        for line in (self._listener, *self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for line in (self._listener, *self._lines):
            line.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self.connections += 1
                self._lines.append(line)
                thread = Thread(target=self._serve, args=(line,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError):
            if self._tls:
                line = self._tls.wrap_socket(line, server_side=True)
                self._lines.append(line)
            unread = b""
            while True:
                while b"\r\n\r\n" not in unread and len(unread) <= LINE_BYTES_MAX:
                    if not (piece := line.recv(_CHUNK)):
                        return
                    unread += piece
                head = _HEAD.match(unread)
                if head is None:
                    status = 414 if len(unread) > LINE_BYTES_MAX else 400
                    line.sendall(response(status, connection="close"))
                    return
                unread = unread[head.end() :]
                self.heads += 1
                if self.heads == 1:
                    line.sendall(self._first)
                    self.goes_on.wait()
                else:
                    line.sendall(response(200))


@contextmanager
def hasty(first: bytes, tls: ssl.SSLContext | None = None) -> Iterator[HastyReceiver]:
    """Run such a receiver until the block ends."""
    receiver = HastyReceiver(first, tls)
    try:
        yield receiver
    finally:
        receiver.close()
