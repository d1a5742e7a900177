"""What can happen to the bytes of a line; each fault is one coroutine for `FaultProxy`."""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

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
