"""A TCP proxy that does to a line whatever a network, a load balancer or a dying host can do.

It stands before a receiver (`FaultProxy.before_port`) or before Postgres (`before_postgres`) and
runs in a thread of its own. Each line has one *fault* (`Fault`), which sees every chunk of
bytes and says what goes on. `script` chooses the fault of a new line by its number, `bend` changes
the lines of this moment too, `heal` makes everything honest again. What is random is drawn from the
seed and the line's number, so a run can be repeated.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.asynchronous import end_every_task, refuse

RESET = struct.pack("ii", 1, 0)
REMEMBERED_BYTES = 65536


class Way(Enum):
    """Where bytes go."""

    UP = auto()
    """From the client to the server."""

    DOWN = auto()
    """From the server to the client."""


@dataclass(eq=False)
class Line:
    """A client's connection and the one to the server behind it."""

    number: int
    """From 1, in the order of connecting."""
    random: random.Random
    writers: dict[Way, asyncio.StreamWriter]
    passed: dict[Way, int] = field(default_factory=lambda: dict.fromkeys(Way, 0))
    """Bytes that went on."""
    lossy: bool = False
    """Whether bytes were lost or changed, so that nobody can use the line any more."""
    memory: bytes = b""
    """For faults that wait for something to be said."""

    def cut(self, *, reset: bool = True) -> None:
        """End both connections, with RST or with FIN."""
        for writer in self.writers.values():
            if reset:
                sock: socket.socket = writer.get_extra_info("socket")
                if sock.family != socket.AF_UNIX:
                    with suppress(OSError):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()
            else:
                writer.close()


Fault = Callable[[Way, bytes, Line], Awaitable[bytes]]
"""What goes on of a chunk; it may wait, change the bytes, keep them, or cut the line."""


async def honest(_way: Way, data: bytes, _line: Line) -> bytes:
    """Pass everything on."""
    return data


class Turns:
    """Pass everything on, and count how often the server was asked and answered."""

    def __init__(self) -> None:
        self.count = 0
        self._last = Way.DOWN

    async def __call__(self, way: Way, data: bytes, _line: Line) -> bytes:
        self.count += self._last is Way.UP and way is Way.DOWN
        self._last = way
        return data


async def half_open(_way: Way, data: bytes, line: Line) -> bytes:
    """Take every byte and pass none on; neither side learns that the other is gone."""
    line.lossy = line.lossy or bool(data)
    return b""


def mute(way: Way) -> Fault:
    """Pass on what goes the other way, and nothing that goes this way."""

    async def fault(at: Way, data: bytes, line: Line) -> bytes:
        return await half_open(at, data, line) if at is way else data

    return fault


def delay(seconds: float, jitter: float = 0.0) -> Fault:
    """Hold back every chunk for a time, longer by up to `jitter` seconds."""

    async def fault(_way: Way, data: bytes, line: Line) -> bytes:
        await asyncio.sleep(seconds + jitter * line.random.random())
        return data

    return fault


def throttle(bytes_per_second: float) -> Fault:
    """Let no more through than this; the rest waits."""

    async def fault(_way: Way, data: bytes, _line: Line) -> bytes:
        await asyncio.sleep(len(data) / bytes_per_second)
        return data

    return fault


def truncate(way: Way, after: int, *, reset: bool = False) -> Fault:
    """Pass on the first `after` bytes of this way, then end the line, with FIN or with RST."""

    async def fault(at: Way, data: bytes, line: Line) -> bytes:
        if at is not way or line.passed[way] + len(data) <= after:
            return data
        rest = data[: after - line.passed[way]]
        line.passed[way] += len(rest)
        line.writers[way].write(rest)
        await line.writers[way].drain()
        line.cut(reset=reset)
        return b""

    return fault


def corrupt(way: Way, chance: float = 1.0) -> Fault:
    """Turn over one bit in a chunk, as often as `chance` says."""

    async def fault(at: Way, data: bytes, line: Line) -> bytes:
        if at is not way or line.random.random() >= chance:
            return data
        line.lossy = True
        place = line.random.randrange(len(data))
        return (
            data[:place] + bytes([data[place] ^ 1 << line.random.randrange(8)]) + data[place + 1 :]
        )

    return fault


def close_when_reused(struck: threading.Event) -> Fault:
    """End a line at the moment at which the client writes again after an answer.

    That is how a server's idle timeout meets a client that keeps connections: the request is
    written, and nobody reads it.
    """

    async def fault(way: Way, data: bytes, line: Line) -> bytes:
        if way is Way.UP and line.passed[Way.DOWN] and not struck.is_set():
            struck.set()
            line.cut()
            return b""
        return data

    return fault


def lose_answer(to: bytes, struck: threading.Event, *, after: bytes = b"") -> Fault:
    """Cut the line when `to` was sent and carried out, and the client has not heard of it.

    Only on a line on which `after` was said before. Happens once.
    """

    async def fault(way: Way, data: bytes, line: Line) -> bytes:
        if struck.is_set():
            return data
        if way is Way.UP:
            line.memory = (line.memory + data)[-REMEMBERED_BYTES:]
            return data
        place = line.memory.find(after)
        if place >= 0 and to in line.memory[place:] and to in data:
            struck.set()
            line.cut()
            return b""
        return data

    return fault


CHUNK = 65536


class FaultProxy:
    """`with FaultProxy.before_port(port) as proxy:`; clients connect to `proxy.port`."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], seed: int = 482) -> None:
        """`connect` opens a connection to the real server, as reader and writer."""
        self._connect = connect
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._lines: dict[Line, Fault] = {}
        self.script: Callable[[int], Fault] = lambda _number: honest
        """The fault of a new line."""
        self.struck = threading.Event()
        """Set by faults that happen at one moment, when it has come."""
        self.port = 0
        self.connections = 0

    @property
    def lossy(self) -> int:
        """How many lines lost bytes, and are open."""
        return sum(line.lossy for line in tuple(self._lines))

    @classmethod
    def before_port(cls, port: int, seed: int = 482) -> Self:
        """Stand before a server on this machine."""
        return cls(lambda: asyncio.open_connection("127.0.0.1", port), seed)

    @classmethod
    def before_postgres(cls, dsn: str, seed: int = 482) -> Self:
        """Stand before the server of a DSN; `dsn_of` says how to reach it through the proxy."""
        target = conninfo_to_dict(dsn)
        host, port = str(target.get("host") or "/tmp"), int(str(target.get("port") or 5432))  # noqa: S108 - libpq's default folder
        if host.startswith("/"):
            return cls(lambda: asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}"), seed)
        return cls(lambda: asyncio.open_connection(host, port), seed)

    def dsn_of(self, dsn: str) -> str:
        """Return the DSN with this proxy in the place of its server."""
        return make_conninfo(dsn, host="127.0.0.1", port=self.port, sslmode="disable")

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._listen())
        return self

    def __exit__(self, *_error: object) -> None:
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def bend(self, fault: Fault) -> None:
        """Give every line this fault, those that are open too."""

        async def change() -> None:
            self.script = lambda _number: fault
            self._lines = dict.fromkeys(self._lines, fault)

        self._await(change())

    def cut(self) -> None:
        """Reset every line of this moment; new ones are served as before."""
        self._await(self._cut(self._lines))

    def refuse(self) -> None:
        """Reset every line and let nobody connect."""
        self._await(self._shut())

    def heal(self) -> None:
        """Be honest from now on; lines that lost bytes are reset, as keepalives do in the end."""

        async def change() -> None:
            self.script = lambda _number: honest
            await self._cut([line for line in self._lines if line.lossy])
            self._lines = dict.fromkeys(self._lines, honest)
            if self._server is None:
                await self._listen()

        self._await(change())

    def _await(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            await refuse(self._server)
            self._server = None
        await self._cut(self._lines)

    async def _cut(self, lines: Any) -> None:
        for line in tuple(lines):
            line.cut()

    async def _end(self) -> None:
        await self._shut()
        await end_every_task()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        draws = random.Random(f"{self._seed}/{number}")  # noqa: S311 - a fault, not a secret
        fault = self.script(number)
        try:
            server, upstream = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        line = Line(number, draws, {Way.UP: upstream, Way.DOWN: writer})
        self._lines[line] = fault
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(Way.UP, reader, line))
                ways.create_task(self._carry(Way.DOWN, server, line))
        finally:
            del self._lines[line]
            line.cut(reset=False)

    async def _carry(self, way: Way, reader: asyncio.StreamReader, line: Line) -> None:
        writer = line.writers[way]
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                data = await self._lines[line](way, data, line)
                if data and not writer.is_closing():
                    line.passed[way] += len(data)
                    writer.write(data)
                    await writer.drain()
        # A line that lost bytes stays open: nobody is to learn that the other side is gone.
        if not line.lossy:
            line.cut(reset=False)
