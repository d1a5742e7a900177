"""What is left of one request never becomes part of the next: real sockets, TLS, every engine."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.getting import Getter
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import (
    LOOPBACK,
    REQUEST,
    HastyReceiver,
    Sending,
    each_engine,
    hasty,
)
from tests.support.dispatch.webhooks import Seen, WebhookReceiver, Wire, answer, response
from tests.support.servers.certificates import Authority
from tests.support.waiting import eventually

AUTHORITY = Authority()
Loop = Callable[[], asyncio.AbstractEventLoop] | None

SMALL = b'{"type":"payout_hold"}'
QUEUED = b"x" * 120_000
"""More than such a receiver's window, less than the kernel takes from us at once."""
HUGE = b"x" * 8_000_000
"""More than the kernel takes: the rest waits in the buffers of the loop's transports."""

each_encryption = pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
each_loop = pytest.mark.parametrize(
    "loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def _two(send: Sending, receiver: HastyReceiver, body: bytes, ca_file: Path) -> list[Answer]:
    """Send `body`, then a small request, which is written before the receiver reads on."""

    async def work() -> list[Answer]:
        transport, target = send.open(ca_file), Target(1, receiver.url, LOOPBACK, 5, 10)
        try:
            first = await transport.send(target, Request(REQUEST.headers, body), Progress())
            progress = Progress()
            second = asyncio.create_task(transport.send(target, REQUEST, progress))
            await asyncio.to_thread(eventually, lambda: progress.sent)
            receiver.goes_on.set()
            return [first, await second]
        finally:
            await transport.close()

    return send.run(work())


@each_encryption
@each_engine
@pytest.mark.parametrize("status", [302, 400, 409, 422, 429, 500, 503, 999])
def test_answer_to_an_unread_body_is_never_reused(
    send: Sending, encrypted: bool, status: int, tmp_path: Path
) -> None:
    tls = AUTHORITY.server() if encrypted else None
    with hasty(response(status), tls) as receiver:
        reply = _two(send, receiver, SMALL, AUTHORITY.file(tmp_path))
        assert reply == [Response(status), Response(200)]
        assert receiver.connections == 2


@each_encryption
@each_engine
@pytest.mark.parametrize("interim", [b"", response(100) + response(103)], ids=["", "interim"])
def test_early_2xx_with_unsent_kernel_bytes_ends_the_connection(
    send: Sending, encrypted: bool, interim: bytes, tmp_path: Path
) -> None:
    tls = AUTHORITY.server() if encrypted else None
    with hasty(interim + response(200), tls) as receiver:
        reply = _two(send, receiver, QUEUED, AUTHORITY.file(tmp_path))
        assert reply == [Response(200)] * 2
        assert receiver.connections == 2


@each_encryption
@each_loop
@pytest.mark.parametrize("status", [200, 503])
def test_early_answer_with_unsent_transport_bytes_ends_the_connection(
    loop: Loop, encrypted: bool, status: int, tmp_path: Path
) -> None:
    """The asyncio engine alone reads before all is written; httpx would wait for its deadline."""
    tls = AUTHORITY.server() if encrypted else None
    with hasty(response(status), tls) as receiver:
        sending = Sending(AsyncioTransport, loop)
        reply = _two(sending, receiver, HUGE, AUTHORITY.file(tmp_path))
        assert reply == [Response(status), Response(200)]
        assert receiver.connections == 2


@each_loop
def test_transport_below_tls_is_asked_what_it_holds(loop: Loop, tmp_path: Path) -> None:
    """Where the kernel does not say what it holds, too."""
    with (
        pytest.MonkeyPatch.context() as patch,
        hasty(response(200), AUTHORITY.server()) as receiver,
    ):
        patch.setattr(
            "holdfast.dispatcher.outbound.transport.http_connection.unacknowledged",
            lambda _socket: 0,
        )
        sending = Sending(AsyncioTransport, loop)
        reply = _two(sending, receiver, HUGE, AUTHORITY.file(tmp_path))
        assert reply == [Response(200)] * 2
        assert receiver.connections == 2


@each_engine
def test_second_answer_in_its_own_record_is_never_reused(send: Sending, tmp_path: Path) -> None:
    async def twice(_seen: Seen, wire: Wire) -> None:
        line: socket.socket = wire.writer.get_extra_info("socket")
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        await wire.send(response(200))
        await wire.send(response(500))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    with webhooks.listening(AUTHORITY.server()) as receiver:
        receiver.script = lambda seen: twice if seen is receiver.seen[0] else answer(200)
        url = receiver.url.replace("127.0.0.1", "localhost")
        assert send.often(url, 2, ca_file=AUTHORITY.file(tmp_path)) == [Response(200)] * 2
        assert receiver.connections == 2


@pytest.mark.guarantee(6)
@each_engine
@pytest.mark.parametrize(("status", "connections"), [(200, 1), (204, 1), (400, 3), (503, 3)])
def test_connection_is_reused_only_after_a_2xx(
    send: Sending, receiver: WebhookReceiver, status: int, connections: int
) -> None:
    receiver.script = lambda _seen: answer(status)
    assert send.often(receiver.url, 3) == [Response(status)] * 3
    assert receiver.connections == connections


@each_engine
def test_fully_read_large_body_leaves_its_connection_usable(send: Sending, tmp_path: Path) -> None:
    with webhooks.listening(AUTHORITY.server()) as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        large = Request(REQUEST.headers, b'{"data":{"merchant_id":"' + b"m" * 500_000 + b'"}}')

        async def work() -> list[Answer]:
            transport = send.open(AUTHORITY.file(tmp_path))
            target = Target(1, url, LOOPBACK, 5, 20)
            results = [await transport.send(target, large, Progress()) for _ in range(5)]
            await transport.close()
            return results

        assert send.run(work()) == [Response(200)] * 5
        assert receiver.connections == 1


@pytest.mark.parametrize(("status", "connections"), [(200, 1), (404, 2)])
def test_inquiry_reuses_its_connection_only_after_a_2xx(status: int, connections: int) -> None:
    ended: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(cast("asyncio.Task[None]", asyncio.current_task()))
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response(status))
        writer.close()
        await writer.wait_closed()

    async def work() -> list[object]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        getter = Getter(Target(1, f"http://127.0.0.1:{port}/", LOOPBACK, 5, 10))
        results: list[object] = [await getter.get("/holdfast/keys/hf_0", (), 10) for _ in range(2)]
        await getter.close()
        server.close()
        await asyncio.wait(ended)
        return results

    assert asyncio.run(work()) == [Response(status)] * 2
    assert len(ended) == connections
