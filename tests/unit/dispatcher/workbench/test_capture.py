"""Captured requests and composed ones: how they are read, explained and checked."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.deploy.payouts.order import Action, HoldOrder
from holdfast.dispatcher.workbench.listen.explain import (
    Explanation,
    NotAHeaderError,
    explain,
    field_of,
    read_capture,
)
from holdfast.dispatcher.workbench.listen.sample import (
    SampleDelivery,
    SampleError,
    compose,
    data_of,
)
from holdfast.receiver import Reason, Secret, VerificationError, verify
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from tests.support.dispatch.sender import KEY_BYTES, body, headers, key_of, secret_text, sign

NOW = 1_793_620_000
CLOCK = datetime.fromtimestamp(NOW, UTC)
BODY = body()
KEY = key_of("m_482", 1)


@pytest.mark.parametrize(
    ("content", "names", "rest"),
    [
        (b"A: 1\nb:2\n", ["A", "b"], None),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n", ["A"], None),
        (b"HTTP/2 200 \r\nA: 1\r\n\r\n{}\r\n", ["A"], b"{}\r\n"),
        (b"POST /webhooks HTTP/1.1\nA: 1\n\n\n{}", ["A"], b"\n{}"),
        (b"> POST / HTTP/1.1\r\n> A: 1\r\n> B: 2\r\n>\r\n", ["A", "B"], None),
        (
            (
                b"*   Trying 127.0.0.1:8098...\n* Connected to host (127.0.0.1) port 8098\n"
                b"> POST / HTTP/1.1\r\n> A: 1\r\n> B: 2\r\n> \r\n} [5 bytes data]\n* done\n"
                b"< HTTP/1.1 200 OK\r\n< C: 3\r\n< \r\n{ [2 bytes data]\n"
            ),
            ["A", "B"],
            None,
        ),
        (b"* a\n> POST / HTTP/1.1\n> A: 1\n>\n* b\n< HTTP/1.1 200 OK\n", ["A"], None),
        (b"* Connected\nPOST / HTTP/1.1\nA: 1\n\n* {}", ["A"], b"* {}"),
        (b"*a: 1\n*b: 2\n", ["*a", "*b"], None),
        (b"", [], None),
    ],
    ids=[
        *("lines", "curl -i", "with a body", "a proxy", "curl -v"),
        *(
            "all of curl -v",
            "curl -v without data",
            "a body that looks like curl",
            "names with a *",
        ),
        "empty",
    ],
)
def test_capture_is_read_as_tools_print_it(
    content: bytes, names: list[str], rest: bytes | None
) -> None:
    capture = read_capture(content)
    assert [name.decode() for name, _ in capture.headers] == names
    assert capture.body == rest


def test_value_is_stripped_of_surrounding_space() -> None:
    assert field_of(b"webhook-signature:  v1,a= v1,b= \r\n") == (
        b"webhook-signature",
        b"v1,a= v1,b=",
    )


@pytest.mark.parametrize(
    "content", [b"nonsense", b"A: 1\n{}\n", b"two words: 1", b": 1", b"A: 1\nPOST / HTTP/1.1\n"]
)
def test_invalid_header_line_is_refused_with_its_number(content: bytes) -> None:
    with pytest.raises(NotAHeaderError, match=r"line [12]: "):
        read_capture(content)


def explained(content: bytes = BODY, *, at: datetime = CLOCK, **changes: str | None) -> Explanation:
    fields: dict[str, str | None] = dict(headers(BODY, timestamp=NOW))
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    pairs = [(name.encode(), text.encode()) for name, text in fields.items() if text is not None]
    with pytest.raises(VerificationError) as refused:
        verify(pairs, content, [Secret(KEY_BYTES)], now=at)
    return explain(refused.value, pairs, content, [Secret(KEY_BYTES)], at)


def test_wrong_signature_is_shown_beside_the_expected_one() -> None:
    wrong = sign(KEY, NOW, BODY, bytes(32))
    why = explained(webhook_signature=wrong)
    assert (why.reason, why.status, why.found) == (Reason.NO_MATCH, 401, wrong)
    assert why.expected == sign(KEY, NOW, BODY)
    assert why.hint is None
    assert secret_text().removeprefix("whsec_") not in str(why)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (BODY + b"\n", "without its last newline"),
        (BODY + b"\r\n", "without its last newline"),
        (b"\xef\xbb\xbf" + BODY, "byte order mark"),
        (json.dumps(json.loads(BODY)).encode(), "(compact"),
        (json.dumps(json.loads(BODY), indent=2).encode(), "(compact"),
    ],
    ids=["newline", "CRLF", "byte order mark", "spaced", "indented"],
)
def test_a_body_changed_in_transit_is_recognised(content: bytes, hint: str) -> None:
    assert hint in (explained(content).hint or "")


def test_json_serialized_again_without_its_newline_is_recognised() -> None:
    anew = json.dumps(json.loads(BODY), indent=2).encode()
    why = explained(anew, webhook_signature=sign(KEY, NOW, BODY + b"\n"))
    assert "(compact" in (why.hint or "")


def test_a_removed_newline_is_recognised() -> None:
    why = explained(BODY, webhook_signature=sign(KEY, NOW, BODY + b"\n"))
    assert "with a newline at its end" in (why.hint or "")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (secret_text().encode(), "used the secret's text, with whsec_"),
        (secret_text().removeprefix("whsec_").encode(), "used the text after whsec_"),
    ],
)
def test_a_secret_used_as_text_is_recognised(key: bytes, hint: str) -> None:
    assert hint in (explained(webhook_signature=sign(KEY, NOW, BODY, key)).hint or "")


@pytest.mark.parametrize(
    ("changes", "reason", "finding"),
    [
        ({"webhook_timestamp": "1e9"}, Reason.BAD_TIMESTAMP, "1e9"),
        ({"webhook_timestamp": "9" * 12}, Reason.TOO_NEW, f"{'9' * 12}, after the year 9999"),
        ({"webhook_id": "a.b"}, Reason.BAD_ID, "a.b"),
        ({"webhook_signature": "v1,xx"}, Reason.BAD_SIGNATURE, "v1,xx"),
        ({"content_encoding": "gzip"}, Reason.ENCODED_BODY, "gzip"),
        ({"idempotency_key": "x"}, Reason.KEY_MISMATCH, f"webhook-id {KEY}, idempotency-key x"),
        (
            {"webhook_id": None, "webhook_signature": None},
            Reason.MISSING_HEADER,
            "content-type, idempotency-key, webhook-timestamp",
        ),
    ],
)
def test_existing_values_are_shown(
    changes: dict[str, str | None], reason: Reason, finding: str
) -> None:
    why = explained(**changes)
    assert (why.reason, why.found) == (reason, finding)
    assert why.rule
    assert why.expected


def test_age_is_shown_in_seconds_between_two_times() -> None:
    why = explained(at=datetime.fromtimestamp(NOW + 4000, UTC))
    assert why.reason == Reason.TOO_OLD
    assert why.found.endswith(": 4000 s")


def made(type_: str = "payout_hold.block", **changes: Any) -> SampleDelivery:
    values: dict[str, Any] = {"subject": "m_test", "sequence": 1, "data": None, "changes": []}
    return compose(type_, **values | changes)


@pytest.mark.parametrize("action", list(Action))
def test_hold_is_an_order_that_the_payouts_service_understands(action: Action) -> None:
    sample = made(f"payout_hold.{action}", subject="m_7", sequence=3)
    body = parse_body(sample.body)
    order = HoldOrder.of(body)
    assert (order.merchant_id, order.action, body.sequence) == ("m_7", action, 3)
    assert (order.exposure_minor > order.limit_minor) is (action is Action.BLOCK)
    assert body.key == sample.key.text


def test_same_arguments_give_same_bytes_and_new_data_keeps_the_key() -> None:
    assert made() == made()
    changed = made(changes=["exposure_minor=1"])
    assert (changed.key, changed.body == made().body) == (made().key, False)


@pytest.mark.parametrize("changes", [{"subject": "m_2"}, {"sequence": 2}])
def test_another_decision_has_another_key(changes: dict[str, Any]) -> None:
    assert made(**changes).key != made().key
    assert made("payout_hold.release").key != made().key


def test_members_are_json_if_valid_json_else_text() -> None:
    changes = ["a=5", "b=five", 'c="5"', "d=[1]", "e=true", "f=", "g=x=y"]
    data = parse_body(made("note.added", changes=changes).body).data
    assert data == {
        "merchant_id": "m_test",
        "a": 5,
        "b": "five",
        "c": "5",
        "d": [1],
        "e": True,
        "f": "",
        "g": "x=y",
    }


def test_given_data_key_and_time_are_taken() -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    sample = made(data={"x": 1}, key="hf_" + "0" * 32, occurred_at=at)
    body = parse_body(sample.body)
    assert (body.data, body.key, body.timestamp) == ({"x": 1}, "hf_" + "0" * 32, at)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"type_": "a b"}, "is not a type"),
        ({"type_": "a." * 70 + "b"}, "is not a type"),
        ({"sequence": 0}, "--sequence"),
        ({"sequence": 2**53}, "--sequence"),
        ({"subject": ""}, "--subject"),
        ({"key": "hf_1"}, "is not a key"),
        ({"changes": ["novalue"]}, "is not name=value"),
        ({"changes": ["a=1.5"]}, "no canonical form"),
        ({"changes": [f"a={'x' * BODY_BYTES_MAX}"]}, "are allowed"),
    ],
)
def test_invalid_argument_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(SampleError, match=says):
        made(**arguments)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff"])
def test_data_must_be_a_json_object(text: bytes) -> None:
    with pytest.raises(SampleError, match="--data"):
        data_of(text)
