"""One HTTP/1.1 connection: a request at a time, and of its answer as much as is looked at.

The parser is llhttp, by `httptools`. What it leaves to its caller is here: how much may be read,
what ends an answer, and whether the connection may carry another request. It may behind a 2xx that
came after the whole request had left: a receiver that answers without reading takes the rest for
the beginning of the next request, and its answer to that would be booked as the next one's.
"""

import asyncio
import select
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dispatcher.outbound.transport.kernel import unacknowledged
from dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX
from sink.contract.wire import KEY_WINDOW

HEAD_BYTES_MAX = 64 * 1024
"""How much is read before a final status line and its fields have come, interim answers too."""

ANSWER_BYTES_MAX = 256 * 1024
"""How much is read of one answer, whatever little of it is body: chunks and trailers are not."""

TIME_IS_UP = "time is up"

_RETRY_AFTER = b"retry-after"
_KEY_WINDOW = KEY_WINDOW.encode()
_LENGTHS = frozenset({len(_RETRY_AFTER), len(_KEY_WINDOW)})
_FIELDS_MAX = 16
"""How many fields of one name are kept."""

_INTERIM, _SWITCHING, _FINAL, _REDIRECTION = 100, 101, 200, 300


class _SurplusError(Exception):
    """There are bytes behind an answer."""


class _StatusError(Exception):
    """The status line has a number that is no status."""


class Reply:
    """What came back for one request."""

    __slots__ = ("body", "fault", "key_window", "retry_after", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after: tuple[str, ...] = ()
        self.key_window: str | None = None
        self.body = b""
        self.fault = ""
        """Why there is no more; empty where the answer came to its end."""


class Connection(asyncio.Protocol):
    """Made by a loop's `create_connection`, and then used by one request after another."""

    def __init__(self, address: str) -> None:
        self.address = address
        """The judged address that it leads to."""
        self.idle_since = 0.0
        self.usable = False
        """Whether another request may be written."""
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Or an interim answer that says `close` would be taken for the last one.
        self._parser.set_dangerous_leniencies(lenient_keep_alive=True)
        self._transport: asyncio.Transport | None = None
        self._below: asyncio.Transport | None = None
        self._descriptor = -1
        self._unread = select.poll()
        self._done: asyncio.Future[None] | None = None
        self._reply = Reply()
        self._read = 0
        self._early = False

    async def exchange(
        self, head: bytes, body: bytes, left: float, passed: Callable[[str], None] | None
    ) -> Reply:
        """Write a request and read its answer, for the `left` seconds at most: more than 0.

        `passed` hears of D7 and D8. A cancellation ends the connection.
        """
        loop = asyncio.get_running_loop()
        reply = self._reply = Reply()
        self._read = 0
        done = self._done = loop.create_future()
        timer = loop.call_later(left, self._end, TIME_IS_UP)
        try:
            if passed is None:
                self._write(head + body)
            else:
                await self._write_slowly(head, body, passed)
            await done
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
        return reply

    def is_quiet(self) -> bool:
        """Return whether it can be used and nothing lies unread, not even that it was closed.

        The loop may not have looked since; and what nobody asked for must not become an answer.
        """
        return self.usable and not self._unread.poll(0)

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio calls this."""
        # What TCP and TLS have, though uvloop's does not say so.
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._unread.register(self._descriptor, select.POLLIN)
        self.usable = True

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Go on by the TLS of `transport`, which stands on the one before."""
        if self._transport is not None:
            self._transport, self._below = transport, self._transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End; asyncio calls this."""
        self.usable = False
        self._end(f"connection lost: {exc}" if exc else "connection closed by the receiver")
        # They refer to each other, and an answer is large: none of it waits to be found as garbage.
        self._parser = self._transport = self._below = None
        self._reply = Reply()

    def data_received(self, data: bytes) -> None:
        """Read what came; asyncio calls this."""
        if self._done is None or self._done.done():
            self.abort()  # nobody asked: it must not become the answer to the next request
            return
        room = HEAD_BYTES_MAX - self._read
        self._read += len(data)
        if self._reply.status is None and len(data) > room:
            self._feed(data[:room])
            data = data[room:]
            if self._reply.status is None:
                self._end("more was sent than is read before a status")
        self._feed(data)
        if self._read > ANSWER_BYTES_MAX:
            self._end("more was sent than is read of an answer")

    def _feed(self, data: bytes) -> None:
        if self._parser is None or self._done is None or self._done.done():
            self.usable = False
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._end("")
        except HttpParserError as error:
            self.usable = False
            self._end(f"no HTTP that can be read: {error.__context__ or error}")

    def on_message_begin(self) -> None:
        """Begin an answer, or bytes behind one; the parser calls this and what follows."""
        if self._done is None or self._done.done():
            raise _SurplusError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the fields that mean something to a dispatcher, and no trailers."""
        reply = self._reply
        if reply.status is not None or len(name) not in _LENGTHS:
            return
        name = name.lower()
        if name == _RETRY_AFTER and len(reply.retry_after) < _FIELDS_MAX:
            reply.retry_after = (*reply.retry_after, _text(value))
        elif name == _KEY_WINDOW and reply.key_window is None:
            reply.key_window = _text(value)

    def on_headers_complete(self) -> None:
        """Take the status, unless it is an interim one."""
        if self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < _INTERIM:
            raise _StatusError(f"status {status}")
        if status >= _FINAL or status == _SWITCHING:
            self._reply.status = status
            self._early = self._is_unsent()

    def on_body(self, chunk: bytes) -> None:
        """Keep the first part of the body; the rest takes the connection along."""
        reply = self._reply
        if reply.status is None:
            return
        reply.body += chunk[: RESPONSE_BYTES_READ_MAX - len(reply.body)]
        if len(reply.body) >= RESPONSE_BYTES_READ_MAX:
            self._end("")

    def on_message_complete(self) -> None:
        """End the answer, or go on behind an interim one."""
        reply = self._reply
        if reply.status is None:
            reply.retry_after, reply.key_window = (), None
        elif self._done is not None and not self._done.done():
            keeps = _FINAL <= reply.status < _REDIRECTION and self._is_kept()
            self._end("")
            self.usable = keeps

    def _is_kept(self) -> bool:
        """Return whether another request may follow the one that was answered."""
        if self._parser is None:
            return False
        return self.usable and not self._early and bool(self._parser.should_keep_alive())

    def _is_unsent(self) -> bool:
        """Return whether a byte of the request is still here.

        Each layer keeps some and says nothing of the one below: TLS, TCP's transport, the kernel.
        """
        if self._transport is None:
            return True
        return bool(
            self._transport.get_write_buffer_size()
            or (self._below is not None and self._below.get_write_buffer_size())
            or unacknowledged(self._descriptor)
        )

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            self._end("connection closed by the receiver")
        else:
            self._transport.write(data)

    async def _write_slowly(self, head: bytes, body: bytes, passed: Callable[[str], None]) -> None:
        for data, point in ((head, "D7"), (body, "D8")):
            self._write(data)
            await asyncio.sleep(0)  # uvloop writes at the end of its turn
            passed(point)

    def _end(self, fault: str) -> None:
        """End the answer; only one that came to its end leaves the connection usable."""
        if self._done is not None and not self._done.done():
            self.usable = False
            self._reply.fault = fault
            self._done.set_result(None)


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("ascii", "replace")
