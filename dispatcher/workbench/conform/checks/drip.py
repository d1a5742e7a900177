"""A sender that never finishes its body: how long does the receiver bear with it?

Written on the socket, because an HTTP client reads the answer only after it has sent the body.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from dispatcher.workbench.conform.shot import Shot

_EVERY_SECONDS = 0.25
_CONNECT_SECONDS_MAX = 10.0
_LINE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Dripped:
    """How it ended: after `seconds` by the receiver, or not at all (`ended` is None)."""

    seconds: float
    ended: str | None


async def drip(url: str, shot: Shot, seconds_max: float, ca_file: str | None = None) -> Dripped:
    """Send a byte of the body every quarter of a second, until the receiver ends it."""
    begin = time.monotonic()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            reader, writer = await _connect(url, ca_file)
    except (OSError, TimeoutError):
        return Dripped(time.monotonic() - begin, "it accepts no connection")
    dripping = asyncio.create_task(_pour(writer, _head(url, shot), shot.body))
    try:
        async with asyncio.timeout(seconds_max):
            line = await reader.readline()
        ended = line[:_LINE_BYTES_MAX].decode("latin-1").strip() or "closed"
    except TimeoutError:
        return Dripped(time.monotonic() - begin, None)
    except (OSError, ValueError):
        ended = "closed"
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.transport.abort()
    return Dripped(time.monotonic() - begin, ended)


async def _connect(
    url: str, ca_file: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if parts.scheme == "https":
        tls = ssl.create_default_context(cafile=ca_file)
        return await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=tls)
    return await asyncio.open_connection(parts.hostname, parts.port or 80)


async def _pour(writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
    writer.write(head)
    # The last byte is never sent, however long it takes.
    for index in range(len(body) - 1):
        writer.write(body[index : index + 1])
        await writer.drain()
        await asyncio.sleep(_EVERY_SECONDS)


def _head(url: str, shot: Shot) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1".encode(),
        b"host: " + parts.netloc.encode(),
        *(b"%s: %s" % header for header in shot.headers),
        b"content-length: %d" % len(shot.body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"
