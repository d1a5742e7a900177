"""What the transport makes of hostile and broken receivers: a real socket, no database.

Every engine must pass all of it; `transport` is the one under test.
"""

import asyncio
import ssl
import time
import tracemalloc
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme

from dispatcher.core.outcome import Answer, NoAnswer, NotSent, Refused, Response
from dispatcher.core.request import Request
from dispatcher.core.target import Target
from dispatcher.ports import Progress, Transport
from dispatcher.transport.httpx_engine import HttpxTransport
from tests.support import webhooks
from tests.support.sender import body
from tests.support.waiting import eventually
from tests.support.webhooks import Behaviour, WebhookReceiver, answer, drip, raw, response

LOOPBACK = (ip_network("127.0.0.0/8"),)
CONTENT = body("m_482")
REQUEST = Request((("content-type", "application/json"), ("webhook-id", "hf_0")), CONTENT)


Engine = Callable[[Path | None], Transport]


@pytest.fixture(params=[HttpxTransport], ids=["httpx"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param
    return made


class Sending:
    """Sends requests one after another over one transport."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(
        self,
        url: str,
        *,
        times: int = 1,
        total: float = 10,
        allowed: Any = LOOPBACK,
        ca_file: Path | None = None,
    ) -> list[Answer]:
        async def work() -> list[Answer]:
            transport = self._engine(ca_file)
            target = Target(1, url, allowed, min(5, total))
            try:
                return [
                    await transport.send(target, REQUEST, total, Progress()) for _ in range(times)
                ]
            finally:
                await transport.close()

        return asyncio.run(work())


@pytest.fixture
def send(engine: Engine) -> Sending:
    return Sending(engine)


def one(answers: list[Answer]) -> Answer:
    (only,) = answers
    return only


def test_request_arrives_as_it_was_composed(send: Sending, receiver: WebhookReceiver) -> None:
    assert one(send(receiver.url + "?a=b")) == Response(200)
    seen = receiver.seen[0]
    assert (seen.method, seen.target, seen.body) == ("POST", "/webhooks?a=b", CONTENT)
    names = {name.lower() for name, _ in seen.headers}
    assert names == {"host", "content-type", "webhook-id", "content-length"}
    assert seen.header("webhook-id") == "hf_0"


def test_connection_is_used_again(send: Sending, receiver: WebhookReceiver) -> None:
    assert len(send(receiver.url, times=3)) == 3
    assert receiver.connections == 1


def test_connection_that_the_receiver_ends_is_not_used_again(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: answer(200, connection="close")
    assert send(receiver.url, times=2) == [Response(200)] * 2
    assert receiver.connections == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_an_answer_and_never_followed(
    send: Sending, receiver: WebhookReceiver, status: int
) -> None:
    receiver.script = lambda _seen: answer(status, location="/elsewhere")
    assert one(send(receiver.url)) == Response(status)
    assert len(receiver.seen) == 1


def test_proxies_of_the_environment_are_ignored(
    send: Sending, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert one(send(receiver.url)) == Response(200)


def test_cookies_are_not_kept(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: answer(200, set_cookie="session=1")
    send(receiver.url, times=2)
    assert all(name.lower() != "cookie" for name, _ in receiver.seen[1].headers)


NOTHING = b"HTTP/1.1 200 OK\r\n"
BROKEN: dict[str, Behaviour] = {
    "closed without a word": webhooks.close,
    "reset": webhooks.reset,
    "no HTTP": raw(b"hello\r\n\r\n"),
    "TLS alert": raw(b"\x15\x03\x01\x00\x02\x02\x28"),
    "status is no number": raw(b"HTTP/1.1 abc OK\r\n\r\n"),
    "status line cut": raw(b"HTTP/1.1 20"),
    "headers cut": raw(b"HTTP/1.1 200 OK\r\ncontent-"),
    "headers without end": drip(b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 10_000 + b"\r\n", 0),
    "two lengths": raw(NOTHING + b"content-length: 1\r\ncontent-length: 2\r\n\r\n"),
    "header with a control character": raw(NOTHING + b"x: \x00\r\n\r\n"),
}


@pytest.mark.parametrize("behaviour", BROKEN.values(), ids=BROKEN.keys())
def test_request_without_an_understandable_answer_is_unknown(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    assert isinstance(one(send(receiver.url)), NoAnswer)


LATE: dict[str, Behaviour] = {
    "silence": webhooks.silence,
    "a byte at a time": drip(b"", b"H"),
    "headers for ever": drip(NOTHING, b"x: y\r\n"),
    "early hints for ever": drip(b"", response(103)),
}


@pytest.mark.parametrize("behaviour", LATE.values(), ids=LATE.keys())
def test_deadline_is_total_and_leaves_the_outcome_unknown(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    started = time.monotonic()
    found = one(send(receiver.url, total=0.5))
    assert isinstance(found, NoAnswer), found
    assert 0.5 <= time.monotonic() - started < 5


GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
AFTER_STATUS: dict[str, Behaviour] = {
    "slow loris": drip(NOTHING + b"content-length: 1000\r\n\r\n", b"z"),
    "endless chunks": drip(NOTHING + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nz\r\n"),
    "length too long": raw(NOTHING + b"content-length: 100\r\n\r\nshort"),
    "broken chunk": raw(NOTHING + b"transfer-encoding: chunked\r\n\r\nzz\r\n"),
    "bad compression": raw(NOTHING + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nno"),
    "half a compression": raw(NOTHING + b"content-encoding: gzip\r\n\r\n" + GZIP),
}


@pytest.mark.parametrize("behaviour", AFTER_STATUS.values(), ids=AFTER_STATUS.keys())
def test_status_line_decides_whatever_becomes_of_the_body(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    found = one(send(receiver.url, total=0.5))
    assert isinstance(found, Response), found
    assert found.status == 200


@pytest.mark.parametrize(
    "start",
    [
        NOTHING + b"content-length: 1073741824\r\n\r\n",
        NOTHING + b"transfer-encoding: chunked\r\n\r\n10000\r\n",
        NOTHING + b"connection: close\r\n\r\n",
    ],
    ids=["declared", "one chunk", "until closed"],
)
def test_huge_body_is_cut_after_16_kb(
    send: Sending, receiver: WebhookReceiver, start: bytes
) -> None:
    receiver.script = lambda _seen: drip(start, b"z" * 65_536, 0)
    tracemalloc.start()
    found = one(send(receiver.url))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == Response(200, (), b"z" * 16_384)
    assert peak < 20_000_000


def test_compressed_body_is_not_unpacked(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: answer(200, GZIP, content_encoding="gzip")
    assert one(send(receiver.url)) == Response(200, (), GZIP)


def test_answer_before_the_request_was_read_counts(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: raw(
        response(100), response(103), response(429, retry_after="7")
    )
    assert one(send(receiver.url)) == Response(429, ("7",))


def test_every_retry_after_field_is_reported(send: Sending, receiver: WebhookReceiver) -> None:
    fields = b"HTTP/1.1 503 Busy\r\nretry-after: 5\r\nRetry-After: 9\r\ncontent-length: 0\r\n\r\n"
    receiver.script = lambda _seen: raw(fields)
    assert one(send(receiver.url)) == Response(503, ("5", "9"))


def test_refused_connection_is_not_sent(send: Sending, receiver: WebhookReceiver) -> None:
    url = receiver.url
    receiver.stop()
    assert isinstance(one(send(url)), NotSent)


def test_unknown_name_is_not_sent(send: Sending) -> None:
    found = one(send("https://no-such-host.invalid/", allowed=()))
    assert isinstance(found, NotSent)
    assert "no-such-host.invalid" in found.error


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"),
        *("[::1]", "[::ffff:127.0.0.1]", "0.0.0.1", "0", "[::]", "169.254.169.254", "10.0.0.1"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]"),
    ],
)
def test_private_address_is_refused_at_connect_time(send: Sending, host: str) -> None:
    found = one(send(f"https://{host}:8443/", allowed=(), total=5))
    assert isinstance(found, Refused | NotSent), found
    if isinstance(found, NotSent):
        assert "cannot be resolved" in found.error


def test_name_that_resolves_to_this_machine_is_refused(
    send: Sending, receiver: WebhookReceiver
) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")
    assert isinstance(one(send(url, allowed=())), Refused)
    assert isinstance(one(send(url)), Response)


def test_plain_http_needs_an_allowed_network(send: Sending) -> None:
    found = one(send("http://1.1.1.1/", allowed=LOOPBACK))
    assert isinstance(found, Refused)
    assert "http://" in found.error


def test_certificate_is_checked_against_the_name_of_the_url(send: Sending, tmp_path: Path) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    with webhooks.listening(tls) as receiver:
        by_name = receiver.url.replace("127.0.0.1", "localhost")
        assert one(send(by_name, ca_file=ca_file)) == Response(200)
        by_address = one(send(receiver.url, ca_file=ca_file))
        assert isinstance(by_address, NotSent), by_address
        untrusted = one(send(by_name))
        assert isinstance(untrusted, NotSent), untrusted
        assert len(receiver.seen) == 1


def test_handshake_that_hangs_is_not_sent(send: Sending, receiver: WebhookReceiver) -> None:
    url = receiver.url.replace("http:", "https:")
    assert isinstance(one(send(url, total=0.5)), NotSent)
    assert receiver.seen == []


def test_cancelled_request_tells_whether_it_was_sent(
    engine: Engine, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: webhooks.silence

    async def work() -> bool:
        transport, progress = engine(None), Progress()
        target = Target(1, receiver.url, LOOPBACK, 5)
        task = asyncio.create_task(transport.send(target, REQUEST, 30, progress))
        await asyncio.to_thread(eventually, lambda: receiver.seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        return progress.sent

    assert asyncio.run(work()) is True


def test_connections_of_a_target_that_is_gone_are_closed(
    engine: Engine, receiver: WebhookReceiver
) -> None:
    async def work() -> None:
        transport = engine(None)
        target = Target(1, receiver.url, LOOPBACK, 5)
        await transport.send(target, REQUEST, 5, Progress())
        await transport.retain([target])
        await transport.send(target, REQUEST, 5, Progress())
        await transport.retain([])
        await transport.send(target, REQUEST, 5, Progress())
        await transport.close()

    asyncio.run(work())
    assert receiver.connections == 2
