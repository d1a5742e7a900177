"""A sender that never finishes its body: are others served, and when is it disconnected?

The slow request uses a raw socket, because an HTTP client reads the answer only after sending the
whole body.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.kit import Kit
from holdfast.dispatcher.workbench.conform.rules import Verdict
from holdfast.dispatcher.workbench.conform.shot import Shot

_HEAD_START_SECONDS = 0.3


class SlowSender:
    """Sends in the background of the other checks, because the receiver may wait for a while."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._task: asyncio.Task[Dripped] | None = None

    async def begin(self) -> list[Verdict]:
        """Start, and send a good delivery at the same time."""
        plan = self._kit.plan
        shot = self._kit.shot(plan.sample.delivery("slow"))
        self._task = asyncio.create_task(drip(plan.url, shot, plan.drip_seconds, plan.ca_file))
        await asyncio.sleep(_HEAD_START_SECONDS)
        reply = await self._kit.send(plan.sample.delivery("beside-slow"))
        if reply.status is None:
            # A receiver that serves one request at a time would fail every other rule as well.
            await self.cancel()
        return [judge.accepted(rules.SLOW_OTHERS, reply)]

    async def end(self) -> list[Verdict]:
        """Wait until the receiver disconnects it."""
        if self._task is None:
            return [rules.SLOW_CUT.warned("not graded: it blocked others")]
        dripped = await self._task
        if dripped.ended is None:
            return [rules.SLOW_CUT.violated(f"still open after {dripped.seconds:.0f} s")]
        return [rules.SLOW_CUT.passed(f"{dripped.ended} after {dripped.seconds:.1f} s")]

    async def cancel(self) -> None:
        """Stop it now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


_EVERY_SECONDS = 0.25
_CONNECT_SECONDS_MAX = 10.0
_LINE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Dripped:
    """How the receiver ended it after `seconds`; `ended` is None if it did not."""

    seconds: float
    ended: str | None


async def drip(url: str, shot: Shot, seconds_max: float, ca_file: str | None = None) -> Dripped:
    """Send one byte of the body every quarter of a second, until the receiver disconnects."""
    begin = time.monotonic()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            reader, writer = await _connect(url, ca_file)
    except (OSError, TimeoutError):
        return Dripped(time.monotonic() - begin, "refused the connection")
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
    # The last byte is never sent.
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
