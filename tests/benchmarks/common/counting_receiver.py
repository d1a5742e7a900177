"""A receiver that answers every webhook with 200 at once, or after some milliseconds, and counts.

A program of its own, with the standard library alone (and uvloop, where that is installed), so
that it takes as little of the machine as it can: `python counting_receiver.py [--latency-ms 5 25]
[--times]` prints its port. `GET /` returns what it has counted, as JSON.

It keeps the order of each subject twice: by arrival (`inversions`), and by whether two requests of
one subject were open at once (`overlaps`).
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections import Counter
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_KEY = re.compile(rb"\r\nwebhook-id: *([^\r]+)", re.IGNORECASE)
_SEQUENCE = re.compile(rb'"sequence":(\d+)')
_SUBJECT = re.compile(rb'"merchant_id":"([^"]+)"')


class Counts:
    """What has arrived."""

    def __init__(self, latency_s: tuple[float, float] | None, *, times: bool) -> None:
        self.latency_s = latency_s
        self.requests = 0
        self.unsigned = 0
        self.inversions = 0
        self.overlaps = 0
        self.first_s = self.last_s = 0.0
        self.open: Counter[bytes] = Counter()
        self.times: dict[str, float] | None = {} if times else None
        self._keys: set[bytes] = set()
        self._moments: list[float] = []
        self._newest: dict[bytes, int] = {}

    def arrived(self, head: bytes, body: bytes) -> bytes:
        """Count one request; returns its subject."""
        now = time.monotonic()
        key, sequence, subject = _KEY.search(head), _SEQUENCE.search(body), _SUBJECT.search(body)
        if key is None or sequence is None or subject is None:
            raise ValueError(f"not a webhook of the benchmark: {head!r} {body!r}")
        self.requests += 1
        self.unsigned += b"webhook-signature" not in head.lower()
        self.first_s = self.first_s or now
        self.last_s = now
        name, number = subject[1], int(sequence[1])
        if key[1] not in self._keys:
            self._keys.add(key[1])
            self._moments.append(now)
            self.inversions += number < self._newest.get(name, 0)
            if self.times is not None:
                self.times[key[1].decode()] = now
        self._newest[name] = max(number, self._newest.get(name, 0))
        return name

    def began(self, subject: bytes) -> None:
        """Count a request that is answered later."""
        self.overlaps += self.open[subject] > 0
        self.open[subject] += 1

    def ended(self, subject: bytes) -> None:
        """Count its end."""
        self.open[subject] -= 1

    def figures(self) -> dict[str, Any]:
        """As `GET /` returns them; moments are seconds of this machine's monotonic clock.

        `most_s` is the arrival of the 99th of every hundred keys.
        """
        return {
            "requests": self.requests,
            "distinct": len(self._keys),
            "unsigned": self.unsigned,
            "inversions": self.inversions,
            "overlaps": self.overlaps,
            "first_s": self.first_s,
            "last_s": self.last_s,
            "most_s": self._moments[len(self._moments) * 99 // 100 - 1] if self._moments else 0.0,
            "processor_s": time.process_time(),
            "times": self.times,
        }


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        """Remember where to answer."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take every whole request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = _LENGTH.search(head)
            length_of_request = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < length_of_request:
                return
            body, self._buffer = (
                self._buffer[end + 4 : length_of_request],
                self._buffer[length_of_request:],
            )
            self._take(head, body)

    def _take(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET "):
            text = json.dumps(self._counts.figures()).encode()
            self._transport.write(OK.replace(b": 0", b": %d" % len(text)) + text)
            return
        subject = self._counts.arrived(head, body)
        if self._counts.latency_s is None:
            self._transport.write(OK)
            return
        self._counts.began(subject)
        delay = random.uniform(*self._counts.latency_s)  # noqa: S311 - no secret
        asyncio.get_running_loop().call_later(delay, self._answer, subject)

    def _answer(self, subject: bytes) -> None:
        self._counts.ended(subject)
        self._transport.write(OK)


async def serve(counts: Counts) -> None:
    """Listen on the loopback address until the process is ended; prints the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counts), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-ms", type=float, nargs=2, help="least and most")
    parser.add_argument("--times", action="store_true", help="keep the moment of each key")
    options = parser.parse_args()
    latency = tuple(each / 1000 for each in options.latency_ms) if options.latency_ms else None
    counts = Counts(latency, times=options.times)  # type: ignore[arg-type]  # two, says argparse
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(serve(counts))
    else:
        uvloop.run(serve(counts))


if __name__ == "__main__":
    main()
