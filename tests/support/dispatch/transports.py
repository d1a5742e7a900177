"""The engines of the transport, and how a test sends with each of them.

`pytestmark = each_engine` runs every test of a file with each; the tests take `send`.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import pytest
import uvloop

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.guard import Resolve
from holdfast.dispatcher.outbound.transport.httpx_engine import HttpxTransport
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.outbound.transport.transport import Progress, Transport
from holdfast.dispatcher.shared.outcome import Answer
from tests.support.dispatch.sender import body
from tests.support.dispatch.webhooks import response

Found = TypeVar("Found")
LOOPBACK = (ip_network("127.0.0.0/8"),)
CONTENT = body("m_482")
REQUEST = Request(
    (("content-type", "application/json"), ("user-agent", "holdfast/0"), ("webhook-id", "hf_0")),
    CONTENT,
)


class Sending:
    """Sends requests one after another over one transport; returns the only answer, or all."""

    def __init__(
        self,
        engine: Callable[[Path | None, Resolve], Transport],
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._engine = engine
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(work)

    def open(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> Transport:
        return self._engine(ca_file, resolve)

    def __call__(self, url: str, **options: Any) -> Answer:
        (answer,) = self.often(url, 1, **options)
        return answer

    def often(
        self,
        url: str,
        times: int,
        *,
        total: float = 10,
        ca_file: Path | None = None,
        resolve: Resolve = system_addresses,
        **columns: Any,
    ) -> list[Answer]:
        target = replace(Target(1, url, LOOPBACK, min(5, total), total), **columns)

        async def work() -> list[Answer]:
            transport = self.open(ca_file, resolve)
            try:
                return [await transport.send(target, REQUEST, Progress()) for _ in range(times)]
            finally:
                await transport.close()

        return self.run(work())

    def fault(self, target: Target) -> str | None:
        async def work() -> str | None:
            transport = self.open()
            try:
                return transport.fault(target)
            finally:
                await transport.close()

        return self.run(work())


ENGINES: dict[str, Callable[[Path | None, Resolve], Transport]] = {
    "httpx": HttpxTransport,
    "asyncio": AsyncioTransport,
}
_HTTPX = pytest.param(Sending(HttpxTransport), id="httpx")
_ASYNCIO = pytest.param(Sending(AsyncioTransport), id="asyncio")
_UVLOOP = pytest.param(Sending(AsyncioTransport, uvloop.new_event_loop), id="asyncio-uvloop")

each_engine = pytest.mark.parametrize("send", [_HTTPX, _ASYNCIO, _UVLOOP])
"""The asyncio engine on both loops, whose transports differ."""

each_parser = pytest.mark.parametrize("send", [_HTTPX, _UVLOOP])
"""For what is sent and read, which is the same on both loops: a dispatcher's loop alone."""


def answering(*answers: Sequence[str]) -> Resolve:
    """A resolver with these answers, one after another, the last one for ever."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


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
