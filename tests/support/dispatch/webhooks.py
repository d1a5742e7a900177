"""A receiver that does what a test says, down to the socket.

It speaks just enough HTTP/1.1 to read a request; what it answers, or does instead, is a
*behaviour*: a coroutine that has the connection. It runs in a thread of its own, so that
synchronous tests, dispatchers in this process and dispatchers in others can all use it.
"""

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.support.asynchronous import end_every_task, refuse

REASONS = {200: "OK", 204: "No Content"}


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    at: float
    connection: int

    def header(self, name: str) -> str:
        """Return the one header of this exact name."""
        (value,) = (value for field, value in self.headers if field == name)
        return value

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content

    @property
    def subject(self) -> str:
        subject: str = self.content["data"]["merchant_id"]
        return subject

    @property
    def sequence(self) -> int:
        sequence: int = self.content["sequence"]
        return sequence


@dataclass
class Wire:
    """The connection, as a behaviour has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Seen, Wire], Awaitable[None]]
Script = Callable[[Seen], Behaviour]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer like any server; `retry_after="5"` becomes a header."""

    async def behave(_seen: Seen, wire: Wire) -> None:
        await wire.send(response(status, body, **headers))

    return behave


def response(status: int, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a well-formed response."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if status >= 200 and status not in (204, 304):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def raw(*pieces: bytes) -> Behaviour:
    """Write these bytes, whatever they mean, and close the connection."""

    async def behave(_seen: Seen, wire: Wire) -> None:
        for piece in pieces:
            await wire.send(piece)
        wire.writer.close()

    return behave


async def reset(_seen: Seen, wire: Wire) -> None:
    """Read the whole request, then reset the connection."""
    wire.reset()


async def close(_seen: Seen, wire: Wire) -> None:
    """Read the whole request, then close the connection without an answer."""
    wire.writer.close()


async def silence(_seen: Seen, wire: Wire) -> None:
    """Never answer; ends when the other side hangs up."""
    await wire.reader.read()


def drip(start: bytes, piece: bytes, every: float = 0.05) -> Behaviour:
    """Write `start`, then `piece` again and again until the other side hangs up."""

    async def behave(_seen: Seen, wire: Wire) -> None:
        await wire.send(start)
        while not wire.writer.is_closing():
            await wire.send(piece)
            await asyncio.sleep(every)

    return behave


class Gate:
    """A behaviour that waits until the test opens it, then answers."""

    def __init__(self, then: Behaviour) -> None:
        self._then = then
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, seen: Seen, wire: Wire) -> None:
        while not self._open.is_set():  # noqa: ASYNC110 - opened from another thread
            await asyncio.sleep(0.005)
        await self._then(seen, wire)


class WebhookReceiver:
    """A listening receiver; everything it saw is in `seen`, in order of arrival."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self.script: Script = lambda _seen: answer(200)
        self.seen: list[Seen] = []
        self.overlaps = 0
        """How often a subject had two requests under way at once."""
        self.busiest = 0
        """The most requests that were under way at once."""
        self.connections = 0
        self._busy: Counter[str] = Counter()
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{self.host}:{self.port}/webhooks"

    def sequences(self, subject: str) -> list[int]:
        """The sequences that arrived for a subject, repetitions included."""
        return [seen.sequence for seen in self.seen if seen.subject == subject]

    def start(self) -> None:
        """Listen; again on the same port after `stop`."""
        if not self._thread.is_alive():
            self._thread.start()
        self._await(self._listen())

    def stop(self) -> None:
        """Refuse connections from now on and cut those that are open."""
        self._await(self._shut())

    def close(self) -> None:
        """Stop; it cannot start again."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            await refuse(self._server)
            self._server = None
        await end_every_task()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        wire = Wire(reader, writer)
        try:
            while not writer.is_closing():
                seen = await _read(reader, number)
                self.seen.append(seen)
                with self._under_way(seen.subject):
                    await self.script(seen)(seen, wire)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    @contextmanager
    def _under_way(self, subject: str) -> Iterator[None]:
        self._busy[subject] += 1
        self.overlaps += self._busy[subject] > 1
        self.busiest = max(self.busiest, self._busy.total())
        try:
            yield
        finally:
            self._busy[subject] -= 1


def meeting(receiver: WebhookReceiver, count: int) -> Behaviour:
    """Answer as soon as `count` requests have been under way at once."""

    async def behave(_seen: Seen, wire: Wire) -> None:
        while receiver.busiest < count:  # noqa: ASYNC110 - counted by other connections
            await asyncio.sleep(0.005)
        await wire.send(response(200))

    return behave


@contextmanager
def listening(
    tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> Iterator[WebhookReceiver]:
    """Run a receiver until the block ends."""
    receiver = WebhookReceiver(tls, host)
    receiver.port = port
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.close()


@contextmanager
def unaccepting() -> Iterator[int]:
    """A port that swallows connections: its queue is full, so nothing more is answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        try:
            yield listener.getsockname()[1]
        finally:
            for client in waiting:
                client.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.split("\r\n")[:-2]
    method, target, _version = first.split(" ")
    pairs = (line.partition(":") for line in rest)
    headers = tuple((name, value.strip()) for name, _, value in pairs)
    length = int(next(value for name, value in headers if name.lower() == "content-length"))
    body = await reader.readexactly(length)
    return Seen(method, target, headers, body, time.monotonic(), connection)


class FirstOf:
    """Behaves in one way when it sees a key first, if `when` says so; else in the other."""

    def __init__(self, when: Callable[[Seen], bool], first: Behaviour, then: Behaviour) -> None:
        self._when = when
        self._first = first
        self._then = then
        self._known: set[tuple[str, str]] = set()

    def __call__(self, seen: Seen) -> Behaviour:
        met = seen.target, seen.header("webhook-id")
        known = met in self._known
        self._known.add(met)
        return self._first if not known and self._when(seen) else self._then
