"""The pyreqwest engine: the same limits as httpx's, kept by a client that is written in Rust.

What differs, because the client tells less:

- It does not say when it begins to write. `Progress.sent` is true from before the call, and false
  again only when the client says that it could not connect. So a deadline or a cancellation while
  it connects counts as perhaps sent.
- It goes on with a request whose task was cancelled, until the total deadline, which it keeps.
- It adds `accept: */*`, and puts fields of one name next to each other.
- D5 and D6 are passed together before the call, D8 and D9 together when the status is there; it
  has no place for D7.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from pyreqwest.client import Client
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response as HttpResponse
from pyreqwest.response import ResponseBodyReader

from dispatcher.clock import seconds
from dispatcher.core.outcome import (
    RESPONSE_BYTES_READ_MAX,
    Answer,
    NoAnswer,
    NotSent,
    Refused,
    Response,
)
from dispatcher.core.request import Request
from dispatcher.core.target import Target
from dispatcher.core.text import one_line
from dispatcher.ports import Progress
from dispatcher.transport.certificates import UnusablePemError
from dispatcher.transport.guard import AddressRefusedError, Resolve, ResolveError, system_addresses
from dispatcher.transport.pinned_clients import PinnedClients, Roots
from sink.contract.failpoints import ENVIRONMENT, failpoint
from sink.contract.wire import KEY_WINDOW

_NOT_CONNECTED = "client error (Connect)"
"""How the client's HTTP library names all that fails before a connection is ready for a request."""

_NONE = (None, None)

_UNREADABLE = "\ufffd"


class PyreqwestTransport:
    """The transport of a dispatcher: clients of its own for each target."""

    def __init__(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> None:
        """`ca_file` holds further certificate authorities to trust, as PEM.

        Raises `OSError` when it cannot be read, `UnusablePemError` when it holds none, and
        `NoAuthoritiesError` when the system has none.
        """
        self._roots = Roots(None if ca_file is None else ca_file.read_bytes())
        self._resolve = resolve
        self._channels: dict[Target, PinnedClients] = {}
        # Targets are compared by all that they hold, which takes as long as building a request.
        self._newest: dict[int, tuple[Target, PinnedClients]] = {}
        self._pass: Callable[[str], None] = failpoint if os.environ.get(ENVIRONMENT) else _nothing

    def fault(self, target: Target) -> str | None:
        """Return why the client cannot use the target's URL or certificates, or None."""
        try:
            self._channel(target)
        except UnusablePemError as error:
            return str(error)
        except ValueError as error:
            return f"its URL cannot be used: {one_line(str(error))}"
        return None

    async def send(
        self, target: Target, request: Request, total_timeout: float, progress: Progress
    ) -> Answer:
        """Make one attempt; see `dispatcher.ports.Transport.send`."""
        try:
            newest, channel = self._newest.get(target.endpoint_id, _NONE)
            if newest is not target or channel is None:
                channel = self._channel(target)
        except ValueError as error:
            return Refused(one_line(str(error)))
        exchange = _Exchange(channel, request, progress, self._pass)
        channel.in_use += 1
        try:
            client = channel.ready()
            if client is not None:
                await exchange.run(client, seconds() + total_timeout, _span(total_timeout))
            else:
                end = seconds() + total_timeout
                async with asyncio.timeout(total_timeout):
                    client = await channel.first(total_timeout)
                await exchange.run(client, end, _until(end))
        except (PyreqwestError, TimeoutError) as error:
            return exchange.answer(_fault(error, total_timeout))
        except ResolveError as error:
            return NotSent(one_line(str(error)))
        except (AddressRefusedError, _UnfitError) as error:
            return Refused(one_line(str(error)))
        finally:
            channel.in_use -= 1
        return exchange.answer("no status line")

    async def retain(self, targets: Collection[Target]) -> None:
        """Close the connections of targets that are not in `targets` and not in use any more.

        Those of `targets` that have had no client yet get one meanwhile: a decision need not wait
        until the authorities are read and the name is resolved.
        """
        for target in self._channels.keys() - set(targets):
            if not self._channels[target].in_use:
                self._newest.pop(target.endpoint_id, None)
                await self._channels.pop(target).close()
        for channel in self._channels.values():
            channel.prepare()

    async def close(self) -> None:
        """Close every connection."""
        self._newest.clear()
        while self._channels:
            await self._channels.popitem()[1].close()

    def _channel(self, target: Target) -> PinnedClients:
        channel = self._channels.get(target)
        if channel is None:
            channel = PinnedClients(target, self._roots, self._resolve)
            self._channels[target] = channel
        self._newest[target.endpoint_id] = (target, channel)
        return channel


class _UnfitError(Exception):
    """The request cannot be written as HTTP."""


class _Exchange:
    """One request on its way, and what is known of the response so far."""

    __slots__ = (
        "_body",
        "_channel",
        "_key_window",
        "_pass",
        "_progress",
        "_request",
        "_retry_after",
        "_status",
    )

    def __init__(
        self,
        channel: PinnedClients,
        request: Request,
        progress: Progress,
        pass_: Callable[[str], None],
    ) -> None:
        self._channel = channel
        self._request = request
        self._progress = progress
        self._pass = pass_
        self._status: int | None = None
        self._retry_after: tuple[str, ...] = ()
        self._key_window: str | None = None
        self._body = b""

    async def run(self, client: Client, end: float, left: timedelta) -> None:
        """Send through `client`, or the next that can connect, and read the answer.

        `end` is the total deadline by this process's clock, `left` what is left until then; it is
        the client that keeps it.
        """
        while True:
            try:
                async with self._call(client, left) as response:
                    self._begin(response)
                    # Asking for a body that is not there takes a turn of the event loop.
                    if response.get_header("content-length") != "0":
                        await self._read(response.body_reader)
            except DetailedPyreqwestError as error:
                if not _not_connected(error):
                    raise
                self._progress.sent = False
                async with asyncio.timeout(end - seconds()):
                    other = await self._channel.after(client)
                if other is None:
                    raise
                client, left = other, _until(end)
            else:
                return

    def _call(self, client: Client, left: timedelta) -> StreamRequest:
        request = self._request
        try:
            call = (
                client.post(self._channel.url)
                .headers(request.headers)
                .body_bytes(request.body)
                .timeout(left)
                # Otherwise the status is not told before so much of the body has come.
                .streamed_read_buffer_limit(0)
                .build_streamed()
            )
        except ValueError as error:
            raise _UnfitError(f"the request cannot be written: {error}") from None
        self._pass("D5")
        self._pass("D6")
        self._progress.sent = True
        return call

    def _begin(self, response: HttpResponse) -> None:
        self._status = response.status
        self._pass("D8")
        self._pass("D9")
        self._retry_after = _retry_after(response)
        self._key_window = _key_window(response)

    async def _read(self, reader: ResponseBodyReader) -> None:
        while (chunk := await reader.read_chunk()) is not None:
            self._body += bytes(chunk)
            if len(self._body) >= RESPONSE_BYTES_READ_MAX:
                # A body that was not read to its end takes its connection along.
                self._body = self._body[:RESPONSE_BYTES_READ_MAX]
                break

    def answer(self, fault: str) -> Answer:
        """Return what came of it: the status line decides, whatever happened to the body."""
        if self._status is not None:
            return Response(self._status, self._retry_after, self._body, self._key_window)
        return NoAnswer(fault) if self._progress.sent else NotSent(fault)


@lru_cache(maxsize=256)
def _span(timeout: float) -> timedelta:
    return timedelta(seconds=timeout)


def _until(end: float) -> timedelta:
    """Return what is left until `end`, as the client takes it."""
    return timedelta(seconds=max(0.001, end - seconds()))


def _retry_after(response: HttpResponse) -> tuple[str, ...]:
    try:
        return tuple(response.get_header_all("retry-after"))
    except ValueError:
        return (_UNREADABLE,)  # the client gives no field that is not ASCII


def _key_window(response: HttpResponse) -> str | None:
    try:
        return response.get_header(KEY_WINDOW)
    except ValueError:
        return _UNREADABLE


def _not_connected(error: DetailedPyreqwestError) -> bool:
    """Return whether the request was never given to a connection.

    The class `ConnectError` does not tell: it also stands for a connection that was reset later.
    """
    return _NOT_CONNECTED in _causes(error)[1:2]


def _causes(error: DetailedPyreqwestError) -> list[str]:
    return [cause["message"] for cause in error.details["causes"] or ()]


def _fault(error: Exception, total_timeout: float) -> str:
    if isinstance(error, DetailedPyreqwestError) and (
        _not_connected(error) or not isinstance(error, TimeoutError)
    ):
        # The first cause repeats the URL, which may hold what a log should not.
        causes = _causes(error)[1:] or [error.message]
        return one_line(f"{type(error).__name__}: {': '.join(causes)}")
    if isinstance(error, TimeoutError):
        return f"no answer within {total_timeout:g} s"
    return one_line(f"{type(error).__name__}: {error}")


def _nothing(_point: str) -> None:
    """Pass a point in a process that was not armed."""
