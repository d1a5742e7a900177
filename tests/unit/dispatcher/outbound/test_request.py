"""The request of an attempt, and URLs that nothing is sent to."""

import pytest

from holdfast.dispatcher.outbound.request import Composer, key_text
from holdfast.dispatcher.outbound.target import url_fault
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
