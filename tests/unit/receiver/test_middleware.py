"""The middleware, spoken to in ASGI: what reaches the application, and what is answered instead."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.receiver import BadData, Delivery, Secret, VerifyDeliveries, delivery_of, inquiry_of
from holdfast.receiver.middleware import Message, Receive, Scope, Send
from tests.support.dispatch.payouts import inquiry_headers
from tests.support.dispatch.sender import KEY_BYTES, Sent, body, key_of

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

    guarded = VerifyDeliveries(application or Application(), secrets=SECRETS, **limits)
    asyncio.run(guarded(scope, receive, send))
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
def test_path_of_inquiries_is_a_whole_folder(path: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        VerifyDeliveries(Application(), secrets=SECRETS, inquiries=path)
