"""Headers of an operator: none of Holdfast's, no framing, no header injection."""

import pytest

from holdfast.dispatcher.outbound.operator_headers import (
    HEADERS_MAX,
    headers_fault,
    joined,
    masked,
    split,
    value_fault,
)
from holdfast.dispatcher.outbound.request import Composer

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
        *("set-cookie", "if-match", "date"),
        *("", "X-Upper", "a b", "a:b", ":authority", "a\r\nhost", "a\x00", "é", "x" * 65, " x"),
    ],
)
def test_name_that_is_ours_or_none_is_refused(name: str) -> None:
    fault = headers_fault([(name, "x")])
    assert fault is not None
    assert fault.isprintable()


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
    assert masked({"a": ["b"], "c": None}) == {"a": ["b"], "c": None}
