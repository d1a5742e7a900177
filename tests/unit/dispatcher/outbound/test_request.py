"""The request of an attempt: its URL, headers and signature, for both envelopes."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import http_sf
import pytest

from holdfast.dispatcher.outbound.cloudevents import NotOurBodyError, attributes, encoded
from holdfast.dispatcher.outbound.operator_headers import (
    HEADERS_MAX,
    NAME_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    headers_fault,
    is_reference,
    joined,
    masked,
    split,
    value_fault,
)
from holdfast.dispatcher.outbound.request import Composer, key_text
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import url_fault
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def headers(traceparent: str | None = None) -> list[tuple[str, str]]:
    request = Composer("holdfast/1").compose(
        key="hf_0",
        subject_id=1,
        timestamp=1731705121,
        signature="v1,x",
        traceparent=traceparent,
        body=b"{}",
    )
    return list(request.headers)


def test_headers_are_those_of_the_wire_format() -> None:
    assert headers() == [
        ("content-type", "application/json"),
        ("user-agent", "holdfast/1"),
        ("accept-encoding", "identity"),
        ("webhook-id", "hf_0"),
        ("webhook-timestamp", "1731705121"),
        ("webhook-signature", "v1,x"),
        ("idempotency-key", '"hf_0"'),
    ]


def test_trace_is_passed_on_when_it_is_one() -> None:
    assert ("traceparent", TRACE) in headers(TRACE)
    for malformed in ("", "00-abc", TRACE.upper(), f"{TRACE}\r\nx: y", f" {TRACE}"):
        assert headers(malformed) == headers()


def test_text_of_a_key_is_that_of_the_contract() -> None:
    key = Key.of(["payout-hold/v1", "m_482"])
    assert key_text(key.digest) == key.text


@pytest.mark.parametrize(
    "url", ["https://payouts.example/hooks?a=b", "http://127.0.0.1:8000/", "https://[::1]:8443/x"]
)
def test_plain_urls_are_fine(url: str) -> None:
    assert url_fault(url) is None


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "gopher://x/", "ftp://x/", "https:///path", "//x/", "x"),
        *("http://user@x/", "http://user:word@x/", "https://x/#part", "https://x:port/"),
        *("https://x/a b", "https://x/\r\nhost:y", "https://x/\x00", "https://x:99999/"),
        "https://[::1/",
    ],
)
def test_other_urls_have_a_fault(url: str) -> None:
    assert url_fault(url) is not None


KEY = Key.of(["payout-hold/v1", "m_482"])
NOON = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)


def body(sequence: int, type_: str = "payout_hold.block", at: datetime = NOON) -> bytes:
    return Envelope.of(type_, at, KEY, {"merchant_id": "m_482"}).body(sequence)


def test_attributes_are_those_of_the_stored_body() -> None:
    assert attributes(KEY.text, 7, "m_482", body(12)) == (
        ("ce-specversion", "1.0"),
        ("ce-id", KEY.text),
        ("ce-source", "/holdfast/subjects/7"),
        ("ce-type", "payout_hold.block"),
        ("ce-time", "2026-11-02T12:15:00Z"),
        ("ce-sequence", "0000000000000000012"),
        ("ce-subject", "m_482"),
    )


def test_subject_that_is_not_known_is_left_out() -> None:
    names = [name for name, _ in attributes(KEY.text, 7, None, body(12))]
    assert "ce-subject" not in names


@pytest.mark.parametrize("type_", ["a", "A.b_C.9", "x" * 128])
@pytest.mark.parametrize(
    "at", [NOON, NOON + timedelta(microseconds=5), datetime.min.replace(tzinfo=UTC)]
)
@pytest.mark.parametrize("sequence", [1, 2**63 - 1])
def test_every_body_that_the_sink_composes_is_read(type_: str, at: datetime, sequence: int) -> None:
    text = dict(attributes(KEY.text, 1, None, body(sequence, type_, at)))
    assert (text["ce-type"], int(text["ce-sequence"])) == (type_, sequence)
    assert datetime.fromisoformat(text["ce-time"]) == at


def test_sequences_compare_as_strings_as_they_do_as_numbers() -> None:
    numbers = [1, 9, 10, 99, 100, 2**31, 2**63 - 1]
    texts = [dict(attributes(KEY.text, 1, None, body(number)))["ce-sequence"] for number in numbers]
    assert texts == sorted(texts)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"data":{},"type":"x"}',
        b'{"type":"a\\u000d\\u000ab","timestamp":"2026-11-02T12:15:00Z","sequence":1,"key":"hf_"}',
        b'{"type":"a","timestamp":"2026-11-02T12:15:00Z\r\n","sequence":1,"key":"hf_"}',
        b'{"type":"a","timestamp":"2026-11-02T12:15:00Z","sequence":-1,"key":"hf_"}',
        b'{"type":"a","timestamp":"2026-11-02T12:15:00Z","sequence":1e3,"key":"hf_"}',
    ],
)
def test_body_of_another_shape_is_refused_and_never_becomes_a_header(content: bytes) -> None:
    with pytest.raises(NotOurBodyError):
        attributes(KEY.text, 1, None, content)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("plain!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "plain!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        (' "%', "%20%22%25"),
        ("Euro €, 😀", "Euro%20%E2%82%AC,%20%F0%9F%98%80"),
        ("\r\n\x00\x7f", "%0D%0A%00%7F"),
        ("\ud800", "?"),
        ("", ""),
    ],
)
def test_values_are_encoded_as_the_http_binding_says(text: str, header: str) -> None:
    assert encoded(text) == header
    assert header.isprintable()
    assert header.isascii()


def independent(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    mac = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def test_published_vector_of_standard_webhooks() -> None:
    signer = Signer([Secret(base64.b64decode("plJ3nmyCDGBKInavdOK15jsl"))])
    body = b'{"event_type":"ping","data":{"success":true}}'
    signature = signer.sign("msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert signature == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_each_active_secret_signs_the_same_bytes() -> None:
    keys = [bytes(range(32)), bytes(range(32, 96)), bytes(24)]
    body = '{"name":"Zoë"}'.encode()
    signature = Signer([Secret(key) for key in keys]).sign("hf_1", 1795220681, body)
    assert signature == " ".join(independent(key, "hf_1", 1795220681, body) for key in keys)


def test_key_is_a_structured_string_as_a_library_writes_it() -> None:
    key = Key.of(["payout-hold/v1", "m_482"]).text
    request = Composer("x").compose(
        key=key, subject_id=1, timestamp=1, signature="v1,x", traceparent=None, body=b"{}"
    )
    assert dict(request.headers)["idempotency-key"] == http_sf.ser(key)


def test_signer_shows_no_secret() -> None:
    signer = Signer([Secret(bytes(range(32)))])
    assert "\\x01\\x02" not in repr(signer)
    assert not hasattr(signer, "__dict__")


CANARY = "whsec_canary"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-tenant", "eu-1"),
        ("x-note", "two words, and 'quotes' \"~\""),
        ("authorization", "env:TOKEN"),
        ("x-api-key", "file:/run/secrets/api-key"),
        ("accept", "application/json"),
        ("x-forwarded-for", "env:"),
        ("monkey", "is no key"),
        ("!#$%&'*+-.^_`|~09az", "x"),
    ],
)
def test_ordinary_header_is_fine(name: str, value: str) -> None:
    assert headers_fault([(name, value)]) is None


@pytest.mark.parametrize(
    "name",
    [
        *("host", "content-type", "content-length", "content-encoding", "transfer-encoding"),
        *("connection", "keep-alive", "te", "trailer", "upgrade", "expect", "proxy-authorization"),
        *("webhook-id", "webhook-signature", "webhook-anything", "idempotency-key", "traceparent"),
        *("tracestate", "ce-id", "ce-source", "accept-encoding", "user-agent", "cookie"),
        *("set-cookie", "if-match", "date", "cookie2", "set-cookie2", "http2-settings"),
        *("alt-used", "max-forwards"),
        *("", "X-Upper", "a b", "a:b", ":authority", "a\r\nhost", "a\x00", "é", "x" * 65, " x"),
    ],
)
def test_reserved_or_invalid_name_is_refused(name: str) -> None:
    for value in ("x", "env:HOLDFAST_SECRET_A"):
        fault = headers_fault([("x-fine", "x"), (name, value)])
        assert fault is not None
        assert fault.isprintable()


def test_longest_name_and_value_are_fine_and_no_text_is_no_name() -> None:
    assert headers_fault([("x" * NAME_CHARACTERS_MAX, "x" * VALUE_CHARACTERS_MAX)]) is None
    assert headers_fault([(5, "x")]) is not None


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        *(("env:A", True), ("file:/a", True), ("file:/a:b", True)),
        *(("env:", False), ("env", False), ("http:x", False), ("x", False), ("", False)),
    ],
)
def test_reference_names_a_variable_or_a_file(value: str, is_one: bool) -> None:
    assert is_reference(value) is is_one


def test_each_header_of_our_own_is_refused_to_operators() -> None:
    request = Composer("x").compose(
        key="hf_", subject_id=1, timestamp=1, signature="v1,x", traceparent=None, body=b"{}"
    )
    assert all(headers_fault([(name, "x")]) for name, _ in request.headers)


@pytest.mark.parametrize(
    "value",
    [
        *("", " x", "x ", "a\r\nhost: b", "a\nb", "a\rb", "a\x00b", "a\tb", "a\x7f", "é", "\ud800"),
        "x" * 2049,
        *(None, 5, True, ["x"], {"a": "b"}),
    ],
)
def test_value_that_could_end_its_header_is_refused(value: object) -> None:
    assert headers_fault([("x-a", value)]) is not None


@pytest.mark.parametrize(
    "name",
    ["authorization", "x-auth-token", "x-api-key", "x-apikey", "x_secret", "password", "key"],
)
def test_token_itself_is_refused_without_being_repeated(name: str) -> None:
    fault = headers_fault([(name, CANARY)])
    assert fault is not None
    assert "env:VAR" in fault
    assert CANARY not in fault


def test_fault_of_a_value_does_not_repeat_it() -> None:
    fault = value_fault("x-a", f"{CANARY}\r\n")
    assert fault is not None
    assert CANARY not in fault


def test_number_of_headers_is_bounded() -> None:
    headers = [(f"x-{number}", "v") for number in range(HEADERS_MAX + 1)]
    assert headers_fault(headers[1:]) is None
    assert headers_fault(headers) is not None


def test_literals_are_masked_in_settings_and_in_audit_rows_of_any_version() -> None:
    stored = {"headers": {"authorization": "env:T", "x-jwt": CANARY, "x-odd": 5}}
    settings = split(stored)
    assert joined(settings) == stored["headers"]
    shown = {"headers": {"authorization": "env:T"}, "headers_literal": {"x-jwt": "***"}}
    assert masked(split({"headers": {"authorization": "env:T", "x-jwt": CANARY}})) == shown
    for detail in (stored, settings, {"before": stored, "after": [settings]}):
        assert CANARY not in str(masked(detail))
    other = {"a": ["b"], "c": None, "limits": {"x": "y"}, "headers": None}
    assert masked(other) == other
    assert split({"url": "u", "headers": {}})["url"] == "u"
