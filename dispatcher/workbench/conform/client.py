"""Sends the requests, each with a deadline. Failures are returned, not raised."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from holdfast.dispatcher.shared.text import one_line
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.shot import Shot

CONNECTIONS_MAX = 64
ANSWER_BYTES_MAX = 16_384
GATE_SECONDS_MAX = 2.0
SILENT_MAX = 5
"""Consecutive requests without an answer, after which the run stops."""


_Content = bytes | AsyncIterator[bytes] | None


class GaveUp(Exception):
    """The receiver stopped answering; the grades so far remain valid."""


class Client:
    """Sends requests and keeps all exchanges in order, for rules about the whole run."""

    def __init__(self, url: str, deadline_seconds: float, ca_file: str | None = None) -> None:
        self.exchanges: list[tuple[Shot, Reply]] = []
        self._url = url
        self._deadline = deadline_seconds
        self._silent = 0
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._http = self._open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def send(self, shot: Shot, url: str | None = None) -> Reply:
        """Send one request to the receiver, or to `url`; raises `GaveUp`."""
        content = shot.body if shot.method != "GET" else None
        return await self._send(self._http, shot, url or self._url, content)

    async def burst(self, shot: Shot, count: int) -> list[Reply]:
        """Send the same request over `count` connections; raises `GaveUp`.

        Each holds back its last byte until all others have sent the rest, so that the receiver
        gets all requests at the same moment.
        """
        gate = Gate(count)
        sized = shot.with_header("content-length", str(len(shot.body)))
        async with self._open() as http:
            sent = [
                self._send(http, sized, self._url, gate.pieces(shot.body)) for _ in range(count)
            ]
            ended = await asyncio.gather(*sent, return_exceptions=True)
        replies = [each for each in ended if isinstance(each, Reply)]
        for each in ended:
            if isinstance(each, BaseException) and not (replies and isinstance(each, GaveUp)):
                raise each
        return replies

    def _open(self) -> httpx.AsyncClient:
        # No redirects, environment proxies or cookies: only the receiver itself is graded.
        # No keep-alive either: a receiver that leaves a body unread would parse it as the next
        # request, and its answer to that would be graded.
        return httpx.AsyncClient(
            trust_env=False,
            verify=self._tls,
            timeout=None,  # noqa: S113 - each request has its deadline
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=0),
        )

    async def _send(
        self, http: httpx.AsyncClient, shot: Shot, url: str, content: _Content
    ) -> Reply:
        begin = time.monotonic()
        http.cookies.clear()  # the dispatcher keeps none
        try:
            async with asyncio.timeout(self._deadline):
                reply = await _exchange(http, shot, url, content)
        except TimeoutError:
            fault = f"no answer within {self._deadline:g} s"
            reply = Reply(time.monotonic() - begin, fault=fault)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            text = one_line(str(error)) or type(error).__name__
            reply = Reply(time.monotonic() - begin, fault=f"no answer ({text})")
        self.exchanges.append((shot, reply))
        self._silent = self._silent + 1 if reply.status is None else 0
        if self._silent >= SILENT_MAX:
            raise GaveUp(f"{SILENT_MAX} requests in a row got no answer, the last: {reply}")
        return reply


class Gate:
    """Lets bodies end together: each waits for the others before its last byte."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._open = asyncio.Event()

    async def pieces(self, body: bytes) -> AsyncIterator[bytes]:
        """Yield `body` in two pieces, the second after all others have sent their first."""
        yield body[:-1]
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        with suppress(TimeoutError):
            # A receiver that accepts few connections at once never reads the other first pieces.
            async with asyncio.timeout(GATE_SECONDS_MAX):
                await self._open.wait()
        yield body[-1:]


async def _exchange(http: httpx.AsyncClient, shot: Shot, url: str, content: _Content) -> Reply:
    begin = time.monotonic()
    request = http.build_request(shot.method, url, headers=list(shot.headers), content=content)
    answer = await http.send(request, stream=True)
    try:
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                break
    finally:
        await answer.aclose()
    fields = {name.lower(): value for name, value in answer.headers.items()}
    duration = time.monotonic() - begin
    return Reply(duration, answer.status_code, fields, bytes(body[:ANSWER_BYTES_MAX]))
