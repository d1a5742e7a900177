"""A request whose time is over before its first byte is not sent, whatever took the time.

What takes it here is a machine that sleeps: its timers stand still meanwhile and do not end the
wait, so the engine has to look at the clock itself.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.guard import Resolve
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared import clock
from holdfast.dispatcher.shared.outcome import Answer, NotSent, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import LOOPBACK, REQUEST, Sending, each_engine
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.servers.certificates import Authority

pytestmark = each_engine

AUTHORITY = Authority()
TOTAL = 10
NAME = "receiver.test"


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


def test_deadline_over_after_name_resolution_is_not_sent(
    send: Sending, receiver: WebhookReceiver, machine: Machine
) -> None:
    url = receiver.url.replace(receiver.host, NAME)
    ((answer, sent),) = send.run(_send(send, url, None, _sleeping(machine, call=1), 1))
    assert isinstance(answer, NotSent), answer
    assert not sent
    assert receiver.seen == []


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
