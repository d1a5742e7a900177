"""Bodies that are signed and still not a delivery; each fails with the same reason."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.receiver import Reason, VerificationError
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.canonical import NotCanonical
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key
from tests.support.dispatch.sender import body, hold


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
