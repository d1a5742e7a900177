"""When a connection may carry another request, and what is left of one that ended: every engine."""

import asyncio
import gc
import random
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
import uvloop

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.http_connection import Connection
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, NoAnswer, NotSent, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import LOOPBACK, REQUEST, Sending, each_engine
from tests.support.dispatch.webhooks import Seen, WebhookReceiver, Wire, answer, raw, response
from tests.support.servers.certificates import Authority
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

AUTHORITY = Authority()
Loop = Callable[[], asyncio.AbstractEventLoop] | None


@each_engine
def test_answer_that_switches_the_protocol_ends_its_connection(
    send: Sending, receiver: WebhookReceiver
) -> None:
    async def switch(_seen: Seen, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n")
        await wire.send(b"connection: upgrade\r\n\r\n")

    receiver.script = lambda seen: switch if seen is receiver.seen[0] else answer(500)
    assert send.often(receiver.url, 2)[1] == Response(500)
    assert receiver.connections == 2


@each_engine
@pytest.mark.parametrize("ending", ["surplus", "closed"])
def test_bytes_arriving_while_busy_are_seen_before_the_next_request(
    send: Sending, receiver: WebhookReceiver, ending: str
) -> None:
    done = Event()

    async def behave(seen: Seen, wire: Wire) -> None:
        await wire.send(response(200))
        if seen is receiver.seen[0]:
            await asyncio.sleep(0.05)
            if ending == "surplus":
                await wire.send(response(500))
            else:
                wire.writer.close()
                await wire.writer.wait_closed()
            done.set()

    receiver.script = lambda _seen: behave

    async def work() -> list[Answer]:
        transport, target = send.open(), Target(1, receiver.url, LOOPBACK, 5, 10)
        first = await transport.send(target, REQUEST, Progress())
        assert done.wait(10)  # in the loop's own thread: it looks at no socket meanwhile
        second = await transport.send(target, REQUEST, Progress())
        await transport.close()
        return [first, second]

    assert send.run(work()) == [Response(200)] * 2
    assert receiver.connections == 2


@each_engine
def test_dropped_connections_carry_no_other_request(
    send: Sending, receiver: WebhookReceiver
) -> None:
    target = Target(1, receiver.url, LOOPBACK, 5, 5)

    async def work() -> None:
        transport = send.open()
        try:
            for _ in range(2):
                await transport.send(target, REQUEST, Progress())
            transport.drop(target)
            await transport.send(target, REQUEST, Progress())
        finally:
            await transport.close()

    send.run(work())
    first, second, third = (seen.connection for seen in receiver.seen)
    assert first == second != third


@each_engine
def test_interim_answer_that_says_close_is_not_the_last(
    send: Sending, receiver: WebhookReceiver
) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nconnection: close\r\n\r\n"
    receiver.script = lambda _seen: raw(interim + response(204))
    assert send(receiver.url) == Response(204)


@each_engine
def test_scheme_in_capitals_is_encrypted_all_the_same(
    send: Sending, receiver: WebhookReceiver
) -> None:
    assert isinstance(send(receiver.url.replace("http:", "HTTPS:"), total=1), NotSent)
    assert receiver.seen == []


@each_engine
def test_requests_that_end_within_a_handshake_harm_no_other(send: Sending, tmp_path: Path) -> None:
    ca_file, draw = AUTHORITY.file(tmp_path), random.Random(1)  # noqa: S311 - moments, not a secret
    with webhooks.listening(AUTHORITY.server()) as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")

        async def work() -> list[Answer]:
            transport, target = send.open(ca_file), Target(1, url, LOOPBACK, 5, 10)
            cut = [
                asyncio.create_task(transport.send(target, REQUEST, Progress())) for _ in range(100)
            ]
            for task in cut:
                asyncio.get_running_loop().call_later(draw.uniform(0, 0.1), task.cancel)
            ended = await asyncio.gather(*cut, return_exceptions=True)
            faults = [each for each in ended if isinstance(each, Exception)]
            assert faults == []
            results = [await transport.send(target, REQUEST, Progress()) for _ in range(20)]
            await transport.close()
            return results

        assert send.run(work()) == [Response(200)] * 20


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connection_that_ended_is_no_garbage(receiver: WebhookReceiver, loop: Loop) -> None:
    """The dispatcher rarely has garbage looked for, and an answer can be large."""
    receiver.script = lambda _seen: answer(200, b"x" * 15_000, connection="close")
    gc.collect()
    gc.disable()
    try:
        reply = Sending(AsyncioTransport, loop).often(receiver.url, 20)
        left = [each for each in gc.get_objects() if isinstance(each, Connection)]
    finally:
        gc.enable()
    assert {type(each) for each in reply} == {Response}
    assert left == []


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_running_request_takes_its_connection_along(receiver: WebhookReceiver, loop: Loop) -> None:
    gate, hung_up = webhooks.Gate(answer(200)), Event()

    async def behave(seen: Seen, wire: Wire) -> None:
        await gate(seen, wire)
        await wire.reader.read()
        hung_up.set()

    receiver.script = lambda _seen: behave
    sending = Sending(AsyncioTransport, loop)

    async def work() -> Answer:
        transport, target = sending.open(), Target(1, receiver.url, LOOPBACK, 5, 10)
        task = asyncio.create_task(transport.send(target, REQUEST, Progress()))
        await asyncio.to_thread(eventually, lambda: receiver.seen)
        await transport.close()
        gate.open()
        result = await task
        await asyncio.to_thread(eventually, hung_up.is_set)
        return result

    assert sending.run(work()) == Response(200)


@each_engine
def test_status_below_100_is_no_answer(send: Sending, receiver: WebhookReceiver) -> None:
    first = b"HTTP/1.1 050 Odd\r\ncontent-length: 5\r\n\r\nhello"
    receiver.script = lambda _seen: raw(first + response(200, b"ok"))
    assert isinstance(send(receiver.url), NoAnswer)


@each_engine
def test_retry_after_comes_without_the_spaces_around_it(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: answer(503, retry_after="5  ")
    assert send(receiver.url) == Response(503, ("5",))
