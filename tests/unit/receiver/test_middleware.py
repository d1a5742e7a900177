"""The middleware in ASGI and WSGI, and the bodies that it accepts."""

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.receiver import (
    BadData,
    Delivery,
    Reason,
    Receipt,
    Secret,
    VerificationError,
    VerifyDeliveries,
    delivery_of,
    inquiry_of,
)
from holdfast.receiver.message.body import parse_body
from holdfast.receiver.middleware import Message, Receive, Scope, Send
from holdfast.receiver.wsgi import DeliveriesApp
from holdfast.sink.contract.canonical import NotCanonical
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.payouts import inquiry_headers
from tests.support.dispatch.sender import KEY_BYTES, Sent, body, headers, hold, key_of

SECRETS = [Secret(KEY_BYTES)]
LIMIT = 256 * 1024


class Application:
    """What is behind the middleware; remembers what it was shown."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            self.bodies.append((await receive())["body"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"seen"})


def scope_of(sent: Sent, *, path: str = "/webhooks", **changes: Any) -> Scope:
    fields = [(name.encode(), value.encode()) for name, value in sent.headers.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": fields, **changes}


def chunks(*parts: bytes) -> list[Message]:
    last = len(parts) - 1
    return [
        {"type": "http.request", "body": part, "more_body": number < last}
        for number, part in enumerate(parts)
    ]


def call(
    scope: Scope, messages: list[Message], application: Application | None = None, **limits: Any
) -> list[Message]:
    """Run one request; a sender that has said everything stays silent for ever."""
    sent: list[Message] = []
    waiting = iter(messages)

    async def receive() -> Message:
        for message in waiting:
            return message
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        async with asyncio.timeout(20):
            await guarded(scope, receive, send)

    guarded = VerifyDeliveries(application or Application(), secrets=SECRETS, **limits)
    asyncio.run(run())
    return sent


def refusal(sent: list[Message]) -> tuple[int, str, dict[str, str]]:
    start, content = sent
    fields = {name.decode(): value.decode() for name, value in start["headers"]}
    problem = json.loads(content["body"])
    assert fields["content-type"] == "application/problem+json"
    assert int(fields["content-length"]) == len(content["body"])
    assert problem["status"] == start["status"]
    return start["status"], problem["reason"], fields


def test_application_sees_the_verified_delivery_and_the_same_bytes() -> None:
    sent, application = Sent.of(), Application()
    answered = call(
        scope_of(sent, state={"kept": 1}),
        chunks(sent.content[:9], b"", sent.content[9:]),
        application,
    )
    assert answered[0]["status"] == 200
    assert application.bodies == [sent.content]
    delivery = delivery_of(application.scopes[0])
    assert isinstance(delivery, Delivery)
    assert delivery.raw == sent.content
    assert application.scopes[0]["state"]["kept"] == 1


def test_delivery_that_the_application_refuses_is_answered() -> None:
    class Service(Application):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await super().__call__(scope, receive, late if scope.get("late") else send)
            delivery_of(scope).body.text("merchant_id")

    async def late(_message: Message) -> None:
        """Nothing was answered yet."""

    sent = Sent.of(data={})
    answered = call(scope_of(sent, late=True), chunks(sent.content), Service())
    assert refusal(answered)[:2] == (422, "bad_data")
    with pytest.raises(BadData):
        call(scope_of(sent), chunks(sent.content), Service())


def test_other_path_passes_untouched_and_holds_no_delivery() -> None:
    sent, application = Sent.of(), Application()
    for path in ("/", "/webhooks/", "/WEBHOOKS"):
        call(scope_of(sent, path=path), chunks(b"raw"), application)
        with pytest.raises(LookupError, match="not a guarded path"):
            delivery_of(application.scopes[-1])
    assert application.bodies == [b"raw"] * 3


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_only_post_is_taken(method: str) -> None:
    status, reason, fields = refusal(call(scope_of(Sent.of(), method=method), []))
    assert (status, reason, fields["allow"]) == (405, "method_not_allowed", "POST")


def test_socket_on_a_guarded_path_is_closed() -> None:
    sent = call({"type": "websocket", "path": "/webhooks", "headers": []}, [])
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_declared_length_beyond_the_cap_is_refused_before_a_byte_is_read() -> None:
    sent = Sent(b"", {"content-length": str(LIMIT + 1)})
    status, reason, fields = refusal(call(scope_of(sent), []))
    assert (status, reason, fields["connection"]) == (413, "body_too_large", "close")


def test_body_beyond_the_cap_is_refused_whatever_was_declared() -> None:
    sent = Sent(b"", {"content-length": "5"})
    parts = chunks(*[bytes(LIMIT // 4)] * 4, b"!", b"never read")
    assert refusal(call(scope_of(sent), parts))[:2] == (413, "body_too_large")


def test_body_at_the_cap_is_read() -> None:
    content = body(padding="")
    content = body(padding="x" * (LIMIT - len(content)))
    assert len(content) == LIMIT
    sent = Sent(content, Sent.of().headers)
    assert refusal(call(scope_of(sent), chunks(content)))[:2] == (401, "no_match")


def test_slow_body_meets_its_deadline() -> None:
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]
    status, reason, fields = refusal(call(scope_of(Sent.of()), parts, body_seconds_max=0.02))
    assert (status, reason, fields["connection"]) == (408, "slow_body", "close")


def test_sender_that_leaves_half_way_is_not_answered() -> None:
    application = Application()
    parts = [*chunks(b"{", b"")[:1], {"type": "http.disconnect"}]
    assert call(scope_of(Sent.of()), parts, application) == []
    assert application.scopes == []


@pytest.mark.parametrize(
    ("change", "status", "reason", "challenge"),
    [
        (lambda sent: Sent(sent.content + b" ", sent.headers), 401, "no_match", "StandardWebhooks"),
        (lambda sent: Sent(sent.content), 400, "missing_header", None),
    ],
)
def test_unverified_request_never_reaches_the_application(
    change: Callable[[Sent], Sent], status: int, reason: str, challenge: str | None
) -> None:
    application, sent = Application(), change(Sent.of())
    answered = refusal(call(scope_of(sent), chunks(sent.content), application))
    assert answered[:2] == (status, reason)
    assert answered[2].get("www-authenticate") == challenge
    assert application.scopes == []


def test_receiver_without_a_secret_does_not_start() -> None:
    with pytest.raises(ValueError, match="one secret"):
        VerifyDeliveries(Application(), secrets=[])


KEY = key_of("m_482", 1)
ASKED = f"/holdfast/keys/{KEY}"


def inquiry(path: str = ASKED, **changes: Any) -> Scope:
    sent = Sent(b"", inquiry_headers(KEY))
    return scope_of(sent, path=path, **({"method": "GET"} | changes))


def test_application_sees_the_verified_inquiry() -> None:
    application = Application()
    answered = call(inquiry(), chunks(b""), application, inquiries="/holdfast/keys/")
    assert answered[0]["status"] == 200
    assert inquiry_of(application.scopes[0]).key == KEY
    with pytest.raises(LookupError):
        delivery_of(application.scopes[0])


def test_unhandled_inquiries_go_to_the_application() -> None:
    application = Application()
    call(inquiry(), chunks(b""), application)
    with pytest.raises(LookupError, match="not a guarded path"):
        inquiry_of(application.scopes[0])


@pytest.mark.parametrize(
    ("path", "changes", "part", "status", "reason"),
    [
        (ASKED, {}, b"{}", 400, "bad_body"),
        (ASKED, {"method": "POST"}, b"", 405, "method_not_allowed"),
        ("/holdfast/keys/", {}, b"", 400, "bad_id"),
        ("/holdfast/keys/m_482", {}, b"", 400, "bad_id"),
        (f"/holdfast/keys/{key_of('m_482', 2)}", {}, b"", 400, "key_mismatch"),
        (ASKED, {"headers": []}, b"", 400, "missing_header"),
    ],
    ids=["body", "method", "no key", "other text", "another key", "unsigned"],
)
def test_inquiry_that_proves_nothing_never_reaches_the_application(
    path: str, changes: dict[str, Any], part: bytes, status: int, reason: str
) -> None:
    application = Application()
    scope = inquiry(path, **changes)
    answered = refusal(call(scope, chunks(part), application, inquiries="/holdfast/keys/"))
    assert answered[:2] == (status, reason)
    assert application.scopes == []


@pytest.mark.parametrize("path", ["", "keys/", "/keys"])
def test_path_of_inquiries_is_a_folder(path: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        VerifyDeliveries(Application(), secrets=SECRETS, inquiries=path)


SENT = Sent.of("m_482", "block", 1)
GOOD = "v1,GOOD"
"""Stands for the signature, which is made when it is sent: a run of all tests outlasts it."""
SERVERS = [",", ", "]
"""What joins two fields of one name: wsgiref's and gunicorn's comma, mod_wsgi's with a blank."""


class Slow(io.BytesIO):
    """A body that comes in parts: a read returns what is there."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(1000, LIMIT if size is None or size < 0 else size))


def deal(delivery: Delivery) -> Receipt:
    return Receipt(delivery.key, ReceiptOutcome.APPLIED, datetime.now(UTC))


def call_wsgi(
    body: bytes = SENT.content, **environ: Any
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Send a delivery whose length the server does not say; returns status, content, headers."""
    signed = headers(SENT.content)
    signature = signed["webhook-signature"].removeprefix("v1,")
    fields = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in signed.items()}
    values = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/webhooks",
        "wsgi.input": Slow(body),
        **fields,
    }
    if "HTTP_WEBHOOK_SIGNATURE" in environ:
        text = environ["HTTP_WEBHOOK_SIGNATURE"].replace("GOOD", signature)
        environ["HTTP_WEBHOOK_SIGNATURE"] = text
    started: list[tuple[str, list[tuple[str, str]]]] = []
    app = DeliveriesApp([Secret(KEY_BYTES)], deal)
    parts = app({**values, **environ}, lambda status, fields: started.append((status, fields)))
    ((status, answered),) = started
    return int(status[:3]), json.loads(b"".join(parts)), dict(answered)


@pytest.mark.parametrize("length", [{}, {"CONTENT_LENGTH": ""}])
def test_chunked_delivery_is_read_to_its_end(length: dict[str, str]) -> None:
    environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True, **length}
    status, content, _ = call_wsgi(**environ)
    assert (status, content["outcome"]) == (200, "applied")


@pytest.mark.parametrize(("excess", "reason"), [(0, "no_match"), (1, "body_too_large")])
def test_chunked_body_is_bounded(excess: int, reason: str) -> None:
    body = bytes(LIMIT + excess)
    _, content, _ = call_wsgi(body, **{"wsgi.input_terminated": True})
    assert content["reason"] == reason


def test_endless_chunked_delivery_is_asked_for_its_length() -> None:
    """Read as an empty body it would be refused for good."""
    status, content, answered = call_wsgi(HTTP_TRANSFER_ENCODING="chunked")
    assert (status, content["reason"], content["title"]) == (
        411,
        "length_required",
        "Length required",
    )
    assert "connection" not in answered


def test_delivery_of_a_known_length_is_read_that_far() -> None:
    length = str(len(SENT.content))
    status, content, _ = call_wsgi(SENT.content + b"more", CONTENT_LENGTH=length)
    assert (status, content["outcome"]) == (200, "applied")


@pytest.mark.parametrize("between", SERVERS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (GOOD, GOOD),
        (GOOD, f"y {GOOD}"),
        (f"{GOOD} v1a,{GOOD[3:]}", "v1,y"),
        ("v1,y", GOOD),
        (f"v2,{GOOD[3:]}", f"{GOOD} v1,y"),
    ],
    ids=["both good", "good second", "other scheme first", "good behind", "other scheme before"],
)
def test_signature_that_came_twice_is_refused(first: str, second: str, between: str) -> None:
    environ = {"HTTP_WEBHOOK_SIGNATURE": first + between + second}
    status, content, _ = call_wsgi(CONTENT_LENGTH=str(len(SENT.content)), **environ)
    if (first, between) == ("v1,y", ", "):
        # As one field it is an entry that cannot be read beside a good one.
        assert status == 200
        return
    assert (status, content["reason"]) == (400, "duplicate_header")


@pytest.mark.parametrize("between", SERVERS)
@pytest.mark.parametrize(
    "name", ["webhook-id", "webhook-timestamp", "idempotency-key", "content-encoding"]
)
def test_other_headers_that_came_twice_are_refused(name: str, between: str) -> None:
    value = SENT.headers.get(name, "identity")
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value + between + value}
    status, _, _ = call_wsgi(CONTENT_LENGTH=str(len(SENT.content)), **environ)
    assert status == 400


def test_entries_that_cannot_be_read_do_no_harm_to_a_good_one() -> None:
    environ = {"HTTP_WEBHOOK_SIGNATURE": f"v1,a,b v1 v1, {GOOD} v2,x"}
    status, _, _ = call_wsgi(CONTENT_LENGTH=str(len(SENT.content)), **environ)
    assert status == 200


def test_body_that_the_sink_composes_is_read() -> None:
    key = Key.of(["payout-hold/v1", "m_\U0001f600", "2026-11-02T12:15:00Z", "block", "1"])
    parsed = parse_body(body())
    envelope = Envelope.of(
        "payout_hold.block", parsed.timestamp, key, hold("m_\U0001f600", "block")
    )
    composed = parse_body(envelope.body(2**53 - 1))
    assert (composed.key, composed.sequence) == (key.text, 2**53 - 1)
    assert composed.timestamp == parsed.timestamp
    assert composed.data["merchant_id"] == "m_\U0001f600"


@pytest.mark.parametrize("levels", range(30, 36))
def test_body_is_read_as_deep_as_the_sink_composes_it(levels: int) -> None:
    data: dict[str, Any] = {"a": 1}
    for _ in range(levels - 1):
        data = {"a": data}
    key, at = Key.of(["deep"]), datetime(2026, 11, 2, tzinfo=UTC)
    tail = b',"key":"%s","data":%s}' % (key.text.encode(), json.dumps(data).encode())
    raw = b'{"type":"a","timestamp":"2026-11-02T00:00:00Z","sequence":1' + tail
    try:
        composed = Envelope.of("a", at, key, data).body(1)
    except NotCanonical:
        with pytest.raises(VerificationError, match="nested too deeply"):
            parse_body(raw)
    else:
        assert parse_body(composed).data == parse_body(raw).data == data


def test_white_space_around_the_object_is_json_as_well() -> None:
    assert parse_body(b"\r\n\t " + body() + b" \n").sequence == 1


def test_escapes_and_many_objects_that_are_clean_are_read() -> None:
    escaped = body().replace(b"m_482", b"m_\\u00e9\\ud83d\\ude00 \\\\u0000")
    assert parse_body(escaped).data["merchant_id"] == "m_\xe9\U0001f600 \\u0000"
    many = parse_body(body(data={"lines": [{} for _ in range(100)], "least": -(2**53 - 1)}))
    assert (len(many.data["lines"]), many.data["least"]) == (100, -(2**53 - 1))


def test_member_of_a_later_version_is_accepted() -> None:
    assert parse_body(body(trace="of tomorrow")).sequence == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + body(),
        body() + b"x",
        body() + b"\x0b",
        b"\xc2\xa0" + body(),
        body().replace(b'"revision":1', b'"revision":-9007199254740992'),
        body(data={"deep": 0}).replace(b'{"deep":0}', b'{"a":' * 33 + b"1" + b"}" * 33),
        body() + body(),
        b"[" * 100_000,
        b'{"a":' * 40 + b"1" + b"}" * 40,
        body().replace(b'"sequence":1', b'"sequence":1,"sequence":1'),
        body().replace(b'"sequence":1', b'"sequence":1.0'),
        body().replace(b'"sequence":1', b'"sequence":NaN'),
        body().replace(b'"sequence":1', b'"sequence":Infinity'),
        body().replace(b'"revision":1', b'"revision":1e400'),
        body().replace(b'"revision":1', b'"revision":9007199254740993'),
        body().replace(b'"revision":1', b'"revision":' + b"9" * 5000),
        body().replace(b"m_482", b"m_\\u0000"),
        body().replace(b"m_482", b"m_\\ud800"),
        body().replace(b"m_482", b"m_\x00"),
        body().replace(b"m_482", b"m_\xff"),
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_text_that_json_readers_disagree_about_is_refused(raw: bytes) -> None:
    assert _refused(raw)


@pytest.mark.parametrize(
    "members",
    [
        {"type": ...},
        {"type": 1},
        {"type": ""},
        {"type": "payout hold"},
        {"type": ".block"},
        {"type": "a" * 129},
        {"timestamp": ...},
        {"timestamp": 1793620000},
        {"timestamp": "2026-11-02"},
        {"timestamp": "2026-11-02T12:15:00"},
        {"timestamp": "2026-11-02T12:15:00+00:00"},
        {"timestamp": "2026-13-02T12:15:00Z"},
        {"timestamp": "20261102T121500Z"},
        {"timestamp": "٢٠٢٦-11-02T12:15:00Z"},
        {"sequence": ...},
        {"sequence": 0},
        {"sequence": -1},
        {"sequence": True},
        {"sequence": "1"},
        {"key": ...},
        {"key": "hf_" + "A" * 32},
        {"key": "hf_12"},
        {"key": 7},
        {"data": ...},
        {"data": []},
        {"data": None},
    ],
    ids=str,
)
def test_body_without_its_members_is_refused(members: dict[str, object]) -> None:
    assert _refused(body(**members))


@pytest.mark.rest
@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_arbitrary_bytes_raise_nothing_else(raw: bytes) -> None:
    assert _refused(raw)


def _refused(raw: bytes) -> bool:
    with pytest.raises(VerificationError) as refused:
        parse_body(raw)
    return refused.value.reason is Reason.BAD_BODY and refused.value.status == 400
