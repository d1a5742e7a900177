"""CloudEvents in HTTP binary mode: what the body says, as headers."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.dispatcher.outbound.cloudevents import NotOurBodyError, attributes, encoded
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

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
    said = dict(attributes(KEY.text, 1, None, body(sequence, type_, at)))
    assert (said["ce-type"], int(said["ce-sequence"])) == (type_, sequence)
    assert datetime.fromisoformat(said["ce-time"]) == at


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
