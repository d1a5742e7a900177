"""What a request is and what becomes of its connection: a real socket, every engine."""

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.engines import EngineName, open_transport
from holdfast.dispatcher.outbound.transport.httpx_engine import HttpxTransport
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, NoAnswer, NotSent, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import CONTENT, LOOPBACK, REQUEST, Sending, each_engine
from tests.support.dispatch.webhooks import WebhookReceiver, answer, raw, response
from tests.support.waiting import eventually


@each_engine
def test_request_arrives_as_it_was_composed(send: Sending, receiver: WebhookReceiver) -> None:
    assert send(receiver.url + "?a=b") == Response(200)
    seen = receiver.seen[0]
    assert (seen.method, seen.target, seen.body) == ("POST", "/webhooks?a=b", CONTENT)
    ours = [(name, value) for name, value in seen.headers if (name, value) in REQUEST.headers]
    assert ours == list(REQUEST.headers)
    others = {name.lower() for name, _ in seen.headers} - {name for name, _ in ours}
    assert others - {"accept"} == {"host", "content-length"}


@each_engine
def test_connection_is_used_again(send: Sending, receiver: WebhookReceiver) -> None:
    assert send.often(receiver.url, 3) == [Response(200)] * 3
    assert receiver.connections == 1


@each_engine
def test_connection_that_the_receiver_ends_is_not_used_again(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: answer(200, connection="close")
    assert send.often(receiver.url, 2) == [Response(200)] * 2
    assert receiver.connections == 2


@each_engine
def test_two_targets_never_share_a_connection(send: Sending, receiver: WebhookReceiver) -> None:
    async def work() -> None:
        transport = send.open()
        for endpoint_id in (1, 2, 1, 2):
            target = Target(endpoint_id, receiver.url, LOOPBACK, 5, 5)
            await transport.send(target, REQUEST, Progress())
        await transport.close()

    send.run(work())
    assert receiver.connections == 2


@each_engine
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize(
    "smuggled", [response(201), response(201, b"x" * 20_000), b"x", b"HTTP/1.1 2"]
)
def test_bytes_after_a_response_never_answer_the_next_request(
    send: Sending, receiver: WebhookReceiver, smuggled: bytes, status: int
) -> None:
    async def twice(_seen: webhooks.Seen, wire: webhooks.Wire) -> None:
        await wire.send(response(status) + smuggled)

    receiver.script = lambda _seen: twice
    assert send.often(receiver.url, 3) == [Response(status)] * 3
    assert receiver.connections == 3


@each_engine
def test_cookies_are_not_kept(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: answer(200, set_cookie="session=1")
    send.often(receiver.url, 2)
    assert all(name.lower() != "cookie" for name, _ in receiver.seen[1].headers)


@each_engine
def test_proxies_of_the_environment_are_ignored(
    send: Sending, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert send(receiver.url) == Response(200)


@each_engine
def test_refused_connection_is_not_sent(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.stop()
    assert isinstance(send(receiver.url), NotSent)


@each_engine
def test_connection_that_was_closed_while_idle_harms_nothing(
    send: Sending, receiver: WebhookReceiver
) -> None:
    async def work() -> list[Answer]:
        transport, target = send.open(), Target(1, receiver.url, LOOPBACK, 5, 5)
        first = await transport.send(target, REQUEST, Progress())
        await asyncio.to_thread(receiver.stop)
        second = await transport.send(target, REQUEST, Progress())
        await asyncio.to_thread(receiver.start)
        third = await transport.send(target, REQUEST, Progress())
        await transport.close()
        return [first, second, third]

    first, second, third = send.run(work())
    assert (first, third) == (Response(200), Response(200))
    assert isinstance(second, NotSent | NoAnswer)
    assert len(receiver.seen) == 2


@each_engine
@pytest.mark.parametrize("ending", [webhooks.close, webhooks.reset], ids=["closed", "reset"])
def test_request_without_an_answer_is_never_written_again(
    send: Sending, receiver: WebhookReceiver, ending: webhooks.Behaviour
) -> None:
    """On a connection that was used before, too, which is where clients like to try again."""
    receiver.script = lambda _seen: answer(200) if len(receiver.seen) == 1 else ending
    first, second = send.often(receiver.url, 2)
    assert first == Response(200)
    assert isinstance(second, NoAnswer), second
    assert len(receiver.seen) == 2


@each_engine
def test_cancelled_request_tells_that_it_was_sent(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: webhooks.silence

    async def work() -> bool:
        transport, progress = send.open(), Progress()
        target = Target(1, receiver.url, LOOPBACK, 5, 30)
        task = asyncio.create_task(transport.send(target, REQUEST, progress))
        await asyncio.to_thread(eventually, lambda: receiver.seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        return progress.sent

    assert send.run(work()) is True


@each_engine
def test_failed_connect_is_reported_as_not_sent(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.stop()

    async def work() -> bool:
        transport, progress = send.open(), Progress()
        await transport.send(Target(1, receiver.url, LOOPBACK, 5, 5), REQUEST, progress)
        await transport.close()
        return progress.sent

    assert send.run(work()) is False


@each_engine
def test_timed_out_request_ends_for_the_receiver_too(
    send: Sending, receiver: WebhookReceiver
) -> None:
    ended: list[float] = []

    async def until_hung_up(_seen: webhooks.Seen, wire: webhooks.Wire) -> None:
        await wire.reader.read()
        ended.append(time.monotonic())

    receiver.script = lambda _seen: until_hung_up

    async def work() -> None:
        transport = send.open()
        await transport.send(Target(1, receiver.url, LOOPBACK, 5, 0.3), REQUEST, Progress())
        await asyncio.to_thread(eventually, lambda: ended, 5)
        await transport.close()

    send.run(work())
    assert len(ended) == 1


@each_engine
def test_connections_of_a_target_that_is_gone_are_closed(
    send: Sending, receiver: WebhookReceiver
) -> None:
    async def work() -> None:
        transport = send.open()
        target = Target(1, receiver.url, LOOPBACK, 5, 5)
        await transport.send(target, REQUEST, Progress())
        await transport.retain([target])
        await transport.send(target, REQUEST, Progress())
        await transport.retain([])
        await transport.send(target, REQUEST, Progress())
        await transport.close()

    send.run(work())
    assert receiver.connections == 2


@each_engine
def test_many_at_once_are_answered_each(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: webhooks.meeting(receiver, 32)

    async def work() -> list[Answer]:
        transport, target = send.open(), Target(1, receiver.url, LOOPBACK, 5, 20)
        answers = await asyncio.gather(
            *(transport.send(target, REQUEST, Progress()) for _ in range(32))
        )
        await transport.close()
        return answers

    assert send.run(work()) == [Response(200)] * 32


@each_engine
def test_process_without_file_descriptors_left_has_not_sent(
    send: Sending, receiver: WebhookReceiver
) -> None:
    async def work() -> tuple[Answer, Answer]:
        transport, target = send.open(), Target(1, receiver.url, LOOPBACK, 5, 5)
        gone = Target(2, receiver.url, LOOPBACK, 5, 5)
        before = await transport.send(target, REQUEST, Progress())
        receiver.script = lambda _seen: answer(200, connection="close")
        await transport.send(target, REQUEST, Progress())
        with _no_descriptors():
            without = await transport.send(gone, REQUEST, Progress())
        await transport.close()
        return before, without

    before, without = send.run(work())
    assert before == Response(200)
    assert isinstance(without, NotSent), without


@contextmanager
def _no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("name", "engine"),
    [("auto", AsyncioTransport), ("asyncio", AsyncioTransport), ("httpx", HttpxTransport)],
)
def test_engine_is_the_fastest_or_the_one_that_was_named(
    name: EngineName, engine: type[object]
) -> None:
    async def work() -> None:
        transport = open_transport(name)
        assert isinstance(transport, engine)
        await transport.close()

    asyncio.run(work())


@each_engine
def test_request_that_is_no_http_is_never_written(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: raw(b"")

    async def work() -> Answer:
        transport, target = send.open(), Target(1, receiver.url, LOOPBACK, 5, 2)
        broken = type(REQUEST)((*REQUEST.headers, ("x", "a\r\nb: c")), CONTENT)
        reply = await transport.send(target, broken, Progress())
        await transport.close()
        return reply

    assert not isinstance(send.run(work()), Response)
    assert receiver.seen == []
