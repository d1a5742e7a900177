"""Which addresses are connected to: judged ones only, whatever a name resolves to meanwhile."""

import asyncio
import time
from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from holdfast.deploy.local.ports import free_port
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, NotSent, Refused, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import LOOPBACK, REQUEST, Sending, answering, each_parser
from tests.support.dispatch.webhooks import WebhookReceiver

pytestmark = [pytest.mark.rest, each_parser]

SECOND = (ip_network("127.0.0.2/32"),)
NAME = "receiver.test"


def named(receiver: WebhookReceiver, name: str = NAME) -> str:
    return receiver.url.replace(receiver.host, name)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"),
        *("LOCALHOST", "localhost.", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.1", "0"),
        *("[::]", "169.254.169.254", "10.0.0.1", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]"),
    ],
)
def test_private_address_is_refused_in_every_disguise(send: Sending, host: str) -> None:
    answer = send(f"https://{host}:8443/", allowed=(), total=5)
    assert isinstance(answer, Refused | NotSent), answer
    if isinstance(answer, NotSent):
        assert "cannot be resolved" in answer.error


@pytest.mark.parametrize(
    "url",
    [
        *("https://", "https:///x", "https://a b/", "https://[::1/", "x", "", "//localhost/"),
        *("file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "unix:///run/x"),
        *("http://a@127.0.0.1/", "http://a:b@127.0.0.1/", "http://127.0.0.1/#x"),
        *("http://127.0.0.1/\r\nx: y", "http://127.0.0.1/\n", "http://127.0.0.1:x/"),
        *("http://127.0.0.1:99999/", "http://127.0.0.1/\x00"),
    ],
)
def test_url_that_cannot_be_sent_to_is_a_fault_and_is_refused(send: Sending, url: str) -> None:
    assert send.fault(Target(1, url, LOOPBACK, 5, 5)) is not None
    answer = send(url)
    assert isinstance(answer, Refused)
    assert answer.of_endpoint


def test_long_url_arrives_as_it_is(send: Sending, receiver: WebhookReceiver) -> None:
    assert send(receiver.url + "?q=" + "a" * 4000) == Response(200)
    assert receiver.seen[0].target == "/webhooks?q=" + "a" * 4000


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "fe80::1", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16"),
        *("100.100.100.200", "::ffff:0:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe"),
    ],
)
def test_metadata_address_is_refused_whatever_is_allowed(send: Sending, address: str) -> None:
    everything = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    answer = send(f"http://{NAME}/", allowed=everything, resolve=answering([address]))
    assert isinstance(answer, Refused), answer
    assert answer.of_endpoint


def test_name_that_resolves_to_this_machine_is_refused(
    send: Sending, receiver: WebhookReceiver
) -> None:
    url = named(receiver, "localhost")
    assert isinstance(send(url, allowed=()), Refused)
    assert isinstance(send(url), Response)


def test_plain_http_needs_an_allowed_network(send: Sending) -> None:
    answer = send("http://1.1.1.1/")
    assert isinstance(answer, Refused)
    assert "http://" in answer.error


@pytest.mark.parametrize("name", [NAME, "LocalHost", "localhost.", "xn--mnchen-3ya.test"])
def test_checked_address_is_the_one_connected_to(send: Sending, name: str) -> None:
    port = free_port()
    with (
        webhooks.listening(host="127.0.0.2", port=port) as second,
        webhooks.listening(port=port) as first,
    ):
        answer = send(named(second, name), allowed=SECOND, resolve=answering(["127.0.0.2"]))
        assert answer == Response(200)
        assert (len(second.seen), len(first.seen)) == (1, 0)


def test_rebound_name_never_reaches_a_private_address(send: Sending) -> None:
    port = free_port()
    with webhooks.listening(host="127.0.0.2", port=port) as second:
        url = named(second)
        resolve = answering(["127.0.0.2"], ["127.0.0.1"])
        with webhooks.listening(port=port) as first:

            async def work() -> list[Answer]:
                transport = send.open(None, resolve)
                target = Target(1, url, SECOND, 2, 5)
                answers = [await transport.send(target, REQUEST, Progress())]
                await asyncio.to_thread(second.stop)  # so that a new connection is needed
                answers += [await transport.send(target, REQUEST, Progress()) for _ in range(4)]
                await transport.close()
                return answers

            answers = send.run(work())
            assert first.seen == []
    assert answers[0] == Response(200)
    assert isinstance(answers[-1], Refused), answers


def test_denied_addresses_of_a_name_are_left_out(send: Sending, receiver: WebhookReceiver) -> None:
    resolve = answering(["10.0.0.1", "169.254.169.254", "127.0.0.1", "::1"])
    assert send(named(receiver), resolve=resolve) == Response(200)


def test_address_that_refuses_is_passed_over(send: Sending, receiver: WebhookReceiver) -> None:
    resolve = answering(["127.0.0.9", "127.0.0.8", "127.0.0.1"])
    assert send.often(named(receiver), 2, resolve=resolve) == [Response(200)] * 2


def test_name_that_moves_is_followed_after_a_failure(send: Sending) -> None:
    with webhooks.listening(host="127.0.0.2") as second:
        resolve = answering(["127.0.0.3"], ["127.0.0.2"])
        first, then = send.often(named(second), 2, resolve=resolve)
    assert isinstance(first, NotSent)
    assert then == Response(200)


def test_of_a_hundred_addresses_few_are_tried(send: Sending) -> None:
    many = [f"127.0.1.{number}" for number in range(100)]
    with webhooks.listening(host=many[-1]) as last:
        answer = send(named(last), resolve=answering(many), total=30)
        assert isinstance(answer, NotSent), answer
        assert last.connections == 0


def test_name_without_an_address_is_not_sent(send: Sending) -> None:
    assert isinstance(send(f"https://{NAME}/", resolve=answering([])), NotSent)


def test_unknown_name_is_not_sent(send: Sending) -> None:
    answer = send("https://no-such-host.invalid/", allowed=())
    assert isinstance(answer, NotSent)
    assert "no-such-host.invalid" in answer.error


def test_resolver_that_hangs_is_not_sent_within_the_connect_timeout(send: Sending) -> None:
    async def hang(_host: str, _port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    started = time.monotonic()
    answer = send(f"http://{NAME}/", resolve=hang, total=30, connect_timeout=0.3)
    assert isinstance(answer, NotSent), answer
    assert time.monotonic() - started < 25


def test_unresponsive_address_is_not_sent_within_the_connect_timeout(send: Sending) -> None:
    with webhooks.unaccepting() as port:
        started = time.monotonic()
        answer = send(f"http://127.0.0.1:{port}/", total=30, connect_timeout=0.3)
        assert isinstance(answer, NotSent), answer
        assert time.monotonic() - started < 25


def test_network_that_is_allowed_elsewhere_is_not_allowed_here(
    send: Sending, receiver: WebhookReceiver
) -> None:
    async def work() -> list[Answer]:
        transport = send.open()
        answers = [
            await transport.send(Target(1, receiver.url, allowed, 5, 5), REQUEST, Progress())
            for allowed in (LOOPBACK, ())
        ]
        await transport.close()
        return answers

    allowed, other = send.run(work())
    assert allowed == Response(200)
    assert isinstance(other, Refused)
