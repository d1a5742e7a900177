"""A name server on this machine whose answer to a name is decided by the name's first label.

`silent` gets no answer, `late` one after `LATE_SECONDS`, `failing` SERVFAIL, `unknown` NXDOMAIN,
`many` 400 addresses and `truncated` one, both over TCP alone, `loop` a chain of names that never
ends. Any name in `broken.test` gets SERVFAIL. Any other name in `test` is 127.0.0.1, and any other
name at all does not exist.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from socketserver import BaseRequestHandler, ThreadingTCPServer, ThreadingUDPServer

from tests.support.servers.threads import in_threads

LATE_SECONDS = 0.5
MANY = 400
_A, _CNAME = 1, 5
_TRUNCATED, _SERVFAIL, _NXDOMAIN = 0x0200, 2, 3
_ANSWER = 0x8180


@dataclass
class NameServer:
    """A running server; `asked` counts the questions for addresses by name."""

    port: int
    asked: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        """Where it is asked."""
        return f"127.0.0.1:{self.port}"

    def answer(self, query: bytes, *, stream: bool) -> bytes | None:
        """Return the answer to a query; None: there is none."""
        name, kind, question = _question(query)
        if kind == _A:
            self.asked[name] += 1
        label, _, rest = name.partition(".")
        flags, records = _ANSWER, list[bytes]()
        match "failing" if rest.endswith("broken.test") else label.partition("-")[0]:
            case "silent":
                return None
            case "failing":
                flags |= _SERVFAIL
            case "loop":
                other = f"{'loop-b' if label == 'loop' else 'loop'}.{rest}"
                records = [_record(_CNAME, _encoded(other))]
            case "many" | "truncated" if not stream:
                flags |= _TRUNCATED
            case word if word == "unknown" or not f".{name}".endswith(".test"):
                flags |= _NXDOMAIN
            case word:
                if word == "late":
                    self.over.wait(LATE_SECONDS)
                count = MANY if word == "many" else 1
                records = [
                    _record(_A, bytes([127, 0, number // 250, number % 250 + 1]))
                    for number in range(count)
                    if kind == _A
                ]
        counts = struct.pack(">HHHH", 1, len(records), 0, 0)
        return query[:2] + struct.pack(">H", flags) + counts + question + b"".join(records)


def _question(query: bytes) -> tuple[str, int, bytes]:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += query[at] + 1
    (kind,) = struct.unpack_from(">H", query, at + 1)
    return ".".join(labels), kind, query[12 : at + 5]


def _encoded(name: str) -> bytes:
    parts = [bytes([len(label)]) + label.encode() for label in name.split(".")]
    return b"".join(parts) + b"\0"


def _record(kind: int, data: bytes) -> bytes:
    return struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(data)) + data


@contextmanager
def name_server(port: int = 0, address: str = "127.0.0.1") -> Iterator[NameServer]:
    """Run one while the block runs, over UDP and TCP at the same port."""

    class Datagram(BaseRequestHandler):
        def handle(self) -> None:
            query, sender = self.request
            answer = server.answer(query, stream=False)
            if answer is not None:
                sender.sendto(answer, self.client_address)

    class Stream(BaseRequestHandler):
        def handle(self) -> None:
            connection: socket.socket = self.request
            while head := connection.recv(2, socket.MSG_WAITALL):
                query = connection.recv(int.from_bytes(head), socket.MSG_WAITALL)
                answer = server.answer(query, stream=True) or b""
                connection.sendall(len(answer).to_bytes(2) + answer)

    class Datagrams(ThreadingUDPServer):
        daemon_threads = True

    class Streams(ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    streams = Streams((address, port), Stream)
    datagrams = Datagrams((address, streams.server_address[1]), Datagram)
    server = NameServer(streams.server_address[1])
    with in_threads(streams, datagrams):
        try:
            yield server
        finally:
            server.over.set()
