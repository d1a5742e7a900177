"""What becomes of answers that are late, broken, endless or too large: a real socket, every engine.

The status line decides as soon as it is there. Without one nobody knows, and it is `NoAnswer`.
"""

import time

import psutil
import pytest

from holdfast.dispatcher.shared.outcome import Answer, NoAnswer, Response
from holdfast.dispatcher.shared.text import storable
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import Sending, each_parser
from tests.support.dispatch.webhooks import (
    Behaviour,
    Seen,
    WebhookReceiver,
    Wire,
    answer,
    drip,
    raw,
)
from tests.support.dispatch.webhooks import response as written

pytestmark = [pytest.mark.rest, each_parser]

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: "


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("location", ["/webhooks", "http://169.254.169.254/", "//[", None])
def test_redirect_is_an_answer_and_never_followed(
    send: Sending, receiver: WebhookReceiver, status: int, location: str | None
) -> None:
    fields = {} if location is None else {"location": location}
    receiver.script = lambda _seen: answer(status, **fields)
    assert send(receiver.url) == Response(status)
    assert len(receiver.seen) == 1


STATUSES = (
    *(200, 201, 202, 204, 205, 206, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415),
    *(418, 421, 422, 425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 507, 508, 511, 599),
    999,
)


@pytest.mark.parametrize("status", STATUSES)
def test_status_is_reported_as_it_is(send: Sending, receiver: WebhookReceiver, status: int) -> None:
    receiver.script = lambda _seen: answer(status)
    assert send(receiver.url) == Response(status)


def test_early_answers_are_passed_over(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: raw(written(100), written(102), written(103), written(429))
    assert send(receiver.url) == Response(429)


RETRY_AFTER = (
    *("0", "120", "-5", "+5", "1_000", "1e9", "inf", "nan", "99999999999999999999", "120, 240"),
    *("Wed, 31 Feb 2027 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "x" * 10_000, ""),
)


@pytest.mark.parametrize("value", RETRY_AFTER, ids=lambda value: value[:20] or "empty")
def test_retry_after_is_reported_as_it_was(
    send: Sending, receiver: WebhookReceiver, value: str
) -> None:
    receiver.script = lambda _seen: answer(503, retry_after=value)
    assert send(receiver.url) == Response(503, (value,))


def test_every_retry_after_field_is_reported(send: Sending, receiver: WebhookReceiver) -> None:
    fields = b"HTTP/1.1 503 Busy\r\nretry-after: 5\r\nRetry-After: 9\r\ncontent-length: 0\r\n\r\n"
    receiver.script = lambda _seen: raw(fields)
    assert send(receiver.url) == Response(503, ("5", "9"))


@pytest.mark.parametrize("value", ["١٢٠".encode(), b"\xff\xfe"], ids=["arabic", "no utf-8"])
def test_retry_after_in_other_letters_leaves_the_status(
    send: Sending, receiver: WebhookReceiver, value: bytes
) -> None:
    fields = b"HTTP/1.1 503 Busy\r\nretry-after: " + value + b"\r\ncontent-length: 0\r\n\r\n"
    receiver.script = lambda _seen: raw(fields)
    reply = send(receiver.url)
    assert isinstance(reply, Response), reply
    assert reply.status == 503


UNKNOWN: dict[str, Behaviour] = {
    "closed without a word": webhooks.close,
    "reset": webhooks.reset,
    "no HTTP": raw(b"hello\r\n\r\n"),
    "TLS alert": raw(b"\x15\x03\x01\x00\x02\x02\x28"),
    "status 99": raw(b"HTTP/1.1 99 Odd\r\ncontent-length: 0\r\n\r\n"),
    "status is no number": raw(b"HTTP/1.1 abc OK\r\n\r\n"),
    "status line cut": raw(b"HTTP/1.1 20"),
    "headers cut": raw(OK + b"content-"),
    "headers without end": drip(OK, b"x: " + b"y" * 10_000 + b"\r\n", 0),
    "a header without end": drip(OK + b"x: ", b"y" * 10_000, 0),
    "two lengths": raw(OK + LENGTH + b"1\r\n" + LENGTH + b"2\r\n\r\nx"),
    "length is negative": raw(OK + LENGTH + b"-1\r\n\r\n"),
    "header with a control character": raw(OK + b"x: \x00\r\n\r\n"),
    "HTTP/2 preface": raw(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"),
}


@pytest.mark.parametrize("behaviour", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_request_without_an_understandable_answer_is_unknown(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    reply = send(receiver.url)
    assert isinstance(reply, NoAnswer), reply


async def _late(_seen: Seen, wire: Wire) -> None:
    """Answer 200, a second after the deadline."""
    await webhooks.asyncio.sleep(1.5)
    await wire.send(written(200))


LATE: dict[str, Behaviour] = {
    "silence": webhooks.silence,
    "after the deadline": _late,
    "a byte at a time": drip(b"HTTP/1.1 200 ", b"O"),
    "headers for ever": drip(OK, b"x: y\r\n"),
    "early hints for ever": drip(b"", written(103)),
}


@pytest.mark.parametrize("behaviour", LATE.values(), ids=LATE.keys())
def test_deadline_is_total_and_leaves_the_outcome_unknown(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    started = time.monotonic()
    reply = send(receiver.url, total=1)
    assert isinstance(reply, NoAnswer), reply
    assert 1 <= time.monotonic() - started < 30


GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
BODIES: dict[str, Behaviour] = {
    "none": raw(OK + b"\r\n"),
    "empty": answer(200),
    "slow loris": drip(OK + LENGTH + b"1000\r\n\r\n", b"z"),
    "endless chunks": drip(OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nz\r\n"),
    "length too long": raw(OK + LENGTH + b"100\r\n\r\nshort"),
    "length too short": raw(OK + LENGTH + b"2\r\n\r\nmuch longer"),
    "reset within": drip(OK + LENGTH + b"100\r\n\r\n", b"z", 0.5),
    "broken chunk": raw(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n"),
    "bad compression": raw(OK + b"content-encoding: gzip\r\n" + LENGTH + b"2\r\n\r\nno"),
    "half a compression": raw(OK + b"content-encoding: gzip\r\n\r\n" + GZIP),
    "unknown compressions": answer(200, b"no", content_encoding="br, zstd, gzip, gzip, x"),
    "unknown charset": answer(200, b"no", content_type="text/plain; charset=klingon"),
    "HTTP/1.0": raw(b"HTTP/1.0 200 OK\r\n\r\nbody"),
}


@pytest.mark.parametrize("behaviour", BODIES.values(), ids=BODIES.keys())
def test_status_line_decides_whatever_becomes_of_the_body(
    send: Sending, receiver: WebhookReceiver, behaviour: Behaviour
) -> None:
    receiver.script = lambda _seen: behaviour
    reply = send(receiver.url, total=0.7)
    assert isinstance(reply, Response), reply
    assert reply.status == 200


def test_answer_then_reset_counts(send: Sending, receiver: WebhookReceiver) -> None:
    async def behave(_seen: Seen, wire: Wire) -> None:
        await wire.send(OK + LENGTH + b"100\r\n\r\nfirst")
        await webhooks.asyncio.sleep(0.2)
        wire.reset()

    receiver.script = lambda _seen: behave
    assert send(receiver.url) == Response(200, (), b"first")


def test_what_came_before_the_deadline_is_kept(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: drip(OK + LENGTH + b"1000\r\n\r\nbegin", b"z", 60)
    reply = send(receiver.url, total=0.5)
    assert isinstance(reply, Response), reply
    assert reply.body.startswith(b"begin")


@pytest.mark.parametrize(
    "start",
    [
        OK + LENGTH + b"1073741824\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n10000000\r\n",
        OK + b"connection: close\r\n\r\n",
    ],
    ids=["declared", "one chunk", "until closed"],
)
def test_huge_body_is_cut_after_16_kb(
    send: Sending, receiver: WebhookReceiver, start: bytes
) -> None:
    sent = 0

    async def endless(_seen: Seen, wire: Wire) -> None:
        nonlocal sent
        await wire.send(start)
        while not wire.writer.is_closing():
            await wire.send(b"z" * 65_536)
            sent += 65_536

    receiver.script = lambda _seen: endless
    before = psutil.Process().memory_info().rss
    assert send(receiver.url) == Response(200, (), b"z" * 16_384)
    assert psutil.Process().memory_info().rss - before < 30_000_000
    assert sent < 30_000_000, "no more is read than the kernels' buffers hold"


def test_compressed_body_is_not_unpacked(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: answer(200, GZIP, content_encoding="gzip")
    assert send(receiver.url) == Response(200, (), GZIP)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"a\x00b", "a\ufffdb"),
        (b"\x1b[31mred", "\ufffd[31mred"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"<script>{{7*7}}=1+1", "<script>{{7*7}}=1+1"),
    ],
)
def test_untrusted_body_arrives_in_full_and_is_storable(
    send: Sending, receiver: WebhookReceiver, body: bytes, text: str
) -> None:
    receiver.script = lambda _seen: answer(200, body)
    assert send(receiver.url) == Response(200, (), body)
    assert storable(body) == text


@pytest.mark.parametrize(
    "fields",
    [b"x: " + b"y" * 100_000 + b"\r\n", b"x: y\r\n" * 10_000],
    ids=["100 kB", "10,000 fields"],
)
def test_excessive_headers_end_in_an_answer_or_none_at_all(
    send: Sending, receiver: WebhookReceiver, fields: bytes
) -> None:
    receiver.script = lambda _seen: raw(OK + fields + LENGTH + b"0\r\n\r\n")
    reply: Answer = send(receiver.url, total=5)
    assert isinstance(reply, NoAnswer) or reply == Response(200), reply


def test_endless_header_is_cut_off_before_the_deadline(
    send: Sending, receiver: WebhookReceiver
) -> None:
    receiver.script = lambda _seen: drip(OK, b"x: y\r\n" * 10_000, 0)
    reply = send(receiver.url, total=60)
    assert isinstance(reply, NoAnswer)
    assert "within" not in reply.error, "it is its length that ended it, and not the time"


def test_status_101_is_a_final_answer(send: Sending, receiver: WebhookReceiver) -> None:
    receiver.script = lambda _seen: raw(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    reply = send(receiver.url, total=1)
    assert isinstance(reply, NoAnswer) or reply == Response(101), reply


@pytest.mark.parametrize(
    "body",
    [
        b"SSH-2.0 c4n4ry\r\n\r\n",
        b"HTTP/1.1 200 c4n4ry\x00\r\n\r\n",
        OK + b"c4n4ry token\r\n\r\n",
        OK + b"x: c4n4ry\x00\r\n\r\n",
        OK + LENGTH + b"c4n4ry\r\n\r\n",
    ],
)
def test_fault_of_an_answer_that_is_none_quotes_nothing_of_it(
    send: Sending, receiver: WebhookReceiver, body: bytes
) -> None:
    """The fault is stored and shown where the answer is not; a receiver may repeat what it got."""
    receiver.script = lambda _seen: raw(body)
    assert "c4n4ry" not in repr(send(receiver.url))
