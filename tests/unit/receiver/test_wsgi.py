"""The WSGI application, as servers call it: chunked bodies, and headers that came twice."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.receiver import Delivery, Receipt, Secret
from holdfast.receiver.wsgi import DeliveriesApp
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, Sent, headers

LIMIT = 256 * 1024
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


def call(body: bytes = SENT.content, **environ: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
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
    status, content, _ = call(**environ)
    assert (status, content["outcome"]) == (200, "applied")


@pytest.mark.parametrize(("excess", "reason"), [(0, "no_match"), (1, "body_too_large")])
def test_chunked_body_is_bounded(excess: int, reason: str) -> None:
    body = bytes(LIMIT + excess)
    _, content, _ = call(body, **{"wsgi.input_terminated": True})
    assert content["reason"] == reason


def test_endless_chunked_delivery_is_asked_for_its_length() -> None:
    """Read as an empty body it would be refused for good."""
    status, content, answered = call(HTTP_TRANSFER_ENCODING="chunked")
    assert (status, content["reason"], content["title"]) == (
        411,
        "length_required",
        "Length required",
    )
    assert "connection" not in answered


def test_delivery_of_a_known_length_is_read_that_far() -> None:
    length = str(len(SENT.content))
    status, content, _ = call(SENT.content + b"more", CONTENT_LENGTH=length)
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
    status, content, _ = call(CONTENT_LENGTH=str(len(SENT.content)), **environ)
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
    status, _, _ = call(CONTENT_LENGTH=str(len(SENT.content)), **environ)
    assert status == 400


def test_entries_that_cannot_be_read_do_no_harm_to_a_good_one() -> None:
    environ = {"HTTP_WEBHOOK_SIGNATURE": f"v1,a,b v1 v1, {GOOD} v2,x"}
    status, _, _ = call(CONTENT_LENGTH=str(len(SENT.content)), **environ)
    assert status == 200
