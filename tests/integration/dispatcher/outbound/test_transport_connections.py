"""Connections: kept, prepared, ended by a deadline, and what they cost in memory."""

import asyncio
import gc
import random
import ssl
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest
import uvloop

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.guard import Resolve
from holdfast.dispatcher.outbound.transport.http_connection import Connection
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared import clock
from holdfast.dispatcher.shared.outcome import Answer, NoAnswer, NotSent, Response
from tests.support.console.flooded import REQUESTS
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import ENGINES, LOOPBACK, REQUEST, Sending, each_engine
from tests.support.dispatch.webhooks import Seen, WebhookReceiver, Wire, answer, raw, response
from tests.support.servers.certificates import Authority
from tests.support.waiting import eventually

AUTHORITY = Authority()
Loop = Callable[[], asyncio.AbstractEventLoop] | None


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
@each_engine
def test_interim_answer_that_says_close_is_not_the_last(
    send: Sending, receiver: WebhookReceiver
) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nconnection: close\r\n\r\n"
    receiver.script = lambda _seen: raw(interim + response(204))
    assert send(receiver.url) == Response(204)


@pytest.mark.rest
@each_engine
def test_scheme_in_capitals_is_encrypted_all_the_same(
    send: Sending, receiver: WebhookReceiver
) -> None:
    assert isinstance(send(receiver.url.replace("http:", "HTTPS:"), total=1), NotSent)
    assert receiver.seen == []


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
@each_engine
def test_status_below_100_is_no_answer(send: Sending, receiver: WebhookReceiver) -> None:
    first = b"HTTP/1.1 050 Odd\r\ncontent-length: 5\r\n\r\nhello"
    receiver.script = lambda _seen: raw(first + response(200, b"ok"))
    assert isinstance(send(receiver.url), NoAnswer)


@pytest.mark.rest
@each_engine
def test_retry_after_comes_without_the_spaces_around_it(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: answer(503, retry_after="5  ")
    assert send(receiver.url) == Response(503, ("5",))


NAME = "receiver.test"


class Names:
    """A resolver that counts how often it was asked, and waits to be allowed to answer."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked = 0
        self.answers = asyncio.Event()
        self._fails = fails

    async def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.asked += 1
        await self.answers.wait()
        if self._fails and self.asked == 1:
            raise OSError("the resolver is away")
        return ["127.0.0.1"]


def _named(receiver: WebhookReceiver, total: float = 10) -> Target:
    return Target(1, receiver.url.replace(receiver.host, NAME), LOOPBACK, 5, total)


async def _loaded(names: Names, target: Target) -> AsyncioTransport:
    transport = AsyncioTransport(resolve=names)
    assert transport.fault(target) is None
    for _ in range(2):  # loads of endpoints, a second apart
        await transport.retain([target])
    return transport


def test_first_request_finds_a_client_whose_name_is_resolved(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        names.answers.set()
        channel = transport._channel(_named(receiver))
        await asyncio.to_thread(eventually, lambda: channel.dialer.fresh)
        assert await transport.send(_named(receiver), REQUEST, Progress()) == Response(200)
        assert names.asked == 1
        await transport.close()

    asyncio.run(work())


def test_concurrent_request_waits_for_the_same_client(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        sending = asyncio.create_task(transport.send(_named(receiver), REQUEST, Progress()))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        names.answers.set()
        assert await sending == Response(200)
        assert names.asked == 1
        await transport.close()

    asyncio.run(work())


def test_unresolved_name_is_resolved_for_the_request(receiver: WebhookReceiver) -> None:
    async def work() -> list[Answer]:
        names = Names(fails=True)
        names.answers.set()
        transport = await _loaded(names, _named(receiver))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        answers = [await transport.send(_named(receiver), REQUEST, Progress())]
        assert names.asked == 2
        await transport.close()
        return answers

    assert asyncio.run(work()) == [Response(200)]


def test_transport_is_closed_while_a_name_is_being_resolved(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        async with asyncio.timeout(60):
            await transport.close()
        answer = await transport.send(_named(receiver, 0.2), REQUEST, Progress())
        assert isinstance(answer, NotSent)
        await transport.close()

    asyncio.run(work())


GIGABYTE = 1 << 30
CHUNK = b"100000\r\n" + b"z" * 0x100000 + b"\r\n"
RSS_MAX = 300 << 20


async def gigabyte(_seen: Seen, wire: Wire) -> None:
    """Answer with a gigabyte in chunks, as long as anybody reads."""
    await wire.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(GIGABYTE // len(CHUNK)):
        await wire.send(CHUNK)


@pytest.mark.parametrize("engine", ENGINES.keys())
def test_200_answers_of_a_gigabyte_at_once_stay_below_300_mib(
    receiver: WebhookReceiver, engine: str
) -> None:
    receiver.script = lambda _seen: gigabyte
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.console.flooded", engine, str(receiver.port)],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rss, cut = map(int, done.stdout.split())
    assert cut == REQUESTS
    assert rss < RSS_MAX


TOTAL = 10


class Machine:
    """This machine's clock; every time it sleeps, another two deadlines pass."""

    def __init__(self) -> None:
        self._read = clock._read
        self._slept = 0.0

    def sleep(self) -> None:
        self._slept += 2 * TOTAL

    def __call__(self) -> float:
        return self._read() + self._slept


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(clock, "_read", machine)
    return machine


async def _send(
    send: Sending, url: str, ca_file: Path | None, resolve: Resolve, times: int
) -> list[tuple[Answer, bool]]:
    transport, target = send.open(ca_file, resolve), Target(1, url, LOOPBACK, 5, TOTAL)
    results = []
    for _ in range(times):
        progress = Progress()
        results.append((await transport.send(target, REQUEST, progress), progress.sent))
    await transport.close()
    return results


def _sleeping(machine: Machine, *, call: int) -> Resolve:
    """A resolver; the machine sleeps during its call number `call`."""
    calls: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        calls.append(host)
        if len(calls) == call:
            machine.sleep()
        return ["127.0.0.1"]

    return resolve


@each_engine
def test_deadline_over_after_name_resolution_is_not_sent(
    send: Sending, receiver: WebhookReceiver, machine: Machine
) -> None:
    url = receiver.url.replace(receiver.host, NAME)
    ((answer, sent),) = send.run(_send(send, url, None, _sleeping(machine, call=1), 1))
    assert isinstance(answer, NotSent), answer
    assert not sent
    assert receiver.seen == []


@each_engine
def test_time_that_is_over_when_it_is_encrypted_is_not_sent(
    send: Sending, machine: Machine, tmp_path: Path
) -> None:
    tls = AUTHORITY.server()

    def fall_asleep(_line: ssl.SSLObject, _name: str | None, _tls: ssl.SSLContext) -> None:
        machine.sleep()

    tls.sni_callback = fall_asleep
    with webhooks.listening(tls) as receiver:
        url = receiver.url.replace(receiver.host, "localhost")
        resolve = _sleeping(machine, call=0)
        ((answer, sent),) = send.run(_send(send, url, AUTHORITY.file(tmp_path), resolve, 1))
        assert isinstance(answer, NotSent), answer
        assert not sent
        assert receiver.seen == []


@each_engine
def test_request_behind_one_that_was_not_sent_in_time_is_sent(
    send: Sending, receiver: WebhookReceiver, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the asyncio engine, which resolves anew here, the second one has an idle connection."""
    monkeypatch.setattr("holdfast.dispatcher.outbound.transport.dialing.RESOLVED_SECONDS", 0)
    url = receiver.url.replace(receiver.host, NAME)
    reply = send.run(_send(send, url, None, _sleeping(machine, call=2), 3))
    written = [answer for answer, sent in reply if sent]
    assert written == [Response(200)] * len(receiver.seen)
    assert all(isinstance(answer, NotSent) for answer, sent in reply if not sent)
    assert reply[-1] == (Response(200), True)
