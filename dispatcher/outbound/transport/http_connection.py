"""One HTTP/1.1 connection: one request at a time, and a bounded part of its answer.

The parser is llhttp, by `httptools`. This module decides what llhttp leaves to its caller: how much
is read, what ends an answer, and whether the connection is reused. It is reused only after a 2xx
that arrived after the whole request was sent: a receiver that answers without reading takes the
unread rest for the start of the next request, and its answer to that would be recorded as the next
request's.
"""

import asyncio
import select
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from holdfast.dispatcher.outbound.transport.kernel import unacknowledged
from holdfast.dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX
from holdfast.sink.contract.wire import KEY_WINDOW

HEAD_BYTES_MAX = 64 * 1024
"""Maximum read up to the end of the final header, interim answers included."""

ANSWER_BYTES_MAX = 256 * 1024
"""Maximum read of one answer, with chunk framing and trailers, however small its body is."""

TIME_IS_UP = "time is up"

_RETRY_AFTER = b"retry-after"
_KEY_WINDOW = KEY_WINDOW.encode()
_LENGTHS = frozenset({len(_RETRY_AFTER), len(_KEY_WINDOW)})
_FIELDS_MAX = 16
"""Maximum number of fields kept for one name."""

_INTERIM, _SWITCHING, _FINAL, _REDIRECTION = 100, 101, 200, 300


class _SurplusError(Exception):
    """Bytes arrived after the answer."""


class _StatusError(Exception):
    """The number in the status line is not an HTTP status."""


class Reply:
    """What was received for one request."""

    __slots__ = ("body", "fault", "key_window", "retry_after", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after: tuple[str, ...] = ()
        self.key_window: str | None = None
        self.body = b""
        self.fault = ""
        """Why the answer is incomplete; empty when it came to its end."""


class Connection(asyncio.Protocol):
    """The protocol object of one connection, used by one request after another."""

    def __init__(self, address: str) -> None:
        self.address = address
        """The judged address that it is connected to."""
        self.idle_since = 0.0
        self.usable = False
        """Whether another request may be written."""
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Otherwise an interim answer with `connection: close` ends the parsing.
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
        self, head: bytes, body: bytes, remaining: float, passed: Callable[[str], None] | None
    ) -> Reply:
        """Write a request and read its answer within `remaining` seconds (more than 0).

        `passed` is called at the failpoints D7 and D8. A cancellation ends the connection.
        """
        loop = asyncio.get_running_loop()
        reply = self._reply = Reply()
        self._read = 0
        done = self._done = loop.create_future()
        timer = loop.call_later(remaining, self._end, TIME_IS_UP)
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
        """Return whether it can be used and its socket has nothing to read, not even its end.

        The loop may not have polled since, and unrequested bytes must not become an answer.
        """
        return self.usable and not self._unread.poll(0)

    def abort(self) -> None:
        """Close at once, also during a request."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio calls this."""
        # TCP and TLS transports are both; uvloop does not declare it.
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._unread.register(self._descriptor, select.POLLIN)
        self.usable = True

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Use the TLS layer `transport`, which is above the transport used so far."""
        if self._transport is not None:
            self._transport, self._below = transport, self._transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End; asyncio calls this."""
        self.usable = False
        self._end(f"connection lost: {exc}" if exc else "connection closed by the receiver")
        # Break the reference cycle: an answer is large and must not wait for the garbage collector.
        self._parser = self._transport = self._below = None
        self._reply = Reply()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; asyncio calls this."""
        if self._done is None or self._done.done():
            self.abort()  # unrequested: it must not become the next answer
            return
        room = HEAD_BYTES_MAX - self._read
        self._read += len(data)
        if self._reply.status is None and len(data) > room:
            self._feed(data[:room])
            data = data[room:]
            if self._reply.status is None:
                self._end("its header is longer than the limit")
        self._feed(data)
        if self._read > ANSWER_BYTES_MAX:
            self._end("its answer is longer than the limit")

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
            self._end(f"its answer is not valid HTTP: {error.__context__ or error}")

    def on_message_begin(self) -> None:
        """Begin an answer, or refuse bytes after one; the parser calls this and what follows."""
        if self._done is None or self._done.done():
            raise _SurplusError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep Retry-After and the key window; ignore every other field and trailers."""
        reply = self._reply
        if reply.status is not None or len(name) not in _LENGTHS:
            return
        name = name.lower()
        if name == _RETRY_AFTER and len(reply.retry_after) < _FIELDS_MAX:
            reply.retry_after = (*reply.retry_after, _text(value))
        elif name == _KEY_WINDOW and reply.key_window is None:
            reply.key_window = _text(value)

    def on_headers_complete(self) -> None:
        """Record the status, unless it is interim."""
        if self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < _INTERIM:
            raise _StatusError(f"status {status}")
        if status >= _FINAL or status == _SWITCHING:
            self._reply.status = status
            self._early = self._is_unsent()

    def on_body(self, chunk: bytes) -> None:
        """Keep the first part of the body; a longer one ends the connection."""
        reply = self._reply
        if reply.status is None:
            return
        reply.body += chunk[: RESPONSE_BYTES_READ_MAX - len(reply.body)]
        if len(reply.body) >= RESPONSE_BYTES_READ_MAX:
            self._end("")

    def on_message_complete(self) -> None:
        """End the answer, or continue after an interim one."""
        reply = self._reply
        if reply.status is None:
            reply.retry_after, reply.key_window = (), None
        elif self._done is not None and not self._done.done():
            keeps = _FINAL <= reply.status < _REDIRECTION and self._is_kept()
            self._end("")
            self.usable = keeps

    def _is_kept(self) -> bool:
        """Return whether the connection may carry another request."""
        if self._parser is None:
            return False
        return self.usable and not self._early and bool(self._parser.should_keep_alive())

    def _is_unsent(self) -> bool:
        """Return whether a byte of the request is still on this machine.

        TLS, the TCP transport and the kernel each buffer, and each reports only its own buffer.
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
            await asyncio.sleep(0)  # uvloop writes at the end of the iteration
            passed(point)

    def _end(self, fault: str) -> None:
        """End the answer and make the connection unusable; `on_message_complete` may restore it."""
        if self._done is not None and not self._done.done():
            self.usable = False
            self._reply.fault = fault
            self._done.set_result(None)


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("ascii", "replace")
