"""A receipt is kept only when it proves itself."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.outbound.receipt import other_key, proven_receipt
from holdfast.dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX
from holdfast.receiver.message.secret import Secret
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, receipt

KEY = "hf_" + "0" * 32
ANSWER = {"key": KEY, "outcome": "applied", "applied_at": "2026-11-02T12:15:01Z"}
SECRETS = [Secret(OTHER_KEY_BYTES), Secret(KEY_BYTES)]


def body(**changes: Any) -> bytes:
    return json.dumps({**ANSWER, "receipt": receipt(ANSWER), "more": "ignored", **changes}).encode()


def test_genuine_receipt_of_either_secret_is_kept() -> None:
    kept = proven_receipt(body(), KEY, SECRETS)
    assert kept is not None
    assert json.loads(kept) == {**ANSWER, "receipt": receipt(ANSWER)}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"ok",
        b"[1]",
        b'"x"',
        b"{}",
        b"\xff",
        b"[" * 16_000,
        body(key="hf_" + "1" * 32),
        body(outcome="duplicate"),
        body(outcome="invented"),
        body(applied_at="2026-11-02T12:15:02Z"),
        body(applied_at=None),
        body(applied_at="\ud800"),
        body(receipt=None),
        body(receipt="v1,"),
        body(receipt="é"),
        body(receipt=receipt(ANSWER, bytes(32))),
    ],
)
def test_anything_else_is_no_receipt(answer: bytes) -> None:
    assert proven_receipt(answer, KEY, SECRETS) is None


def test_receipt_for_another_key_proves_nothing_here() -> None:
    assert proven_receipt(body(), "hf_" + "1" * 32, SECRETS) is None


KEYS = st.binary(min_size=16, max_size=16).map(lambda digest: f"hf_{digest.hex()}")
BLANKS = st.sampled_from(["", " ", "\n\t"])
VALUES = st.none() | st.text() | st.integers() | st.lists(st.text())
MEMBERS = st.dictionaries(
    st.text().filter(lambda name: name not in ("key", "receipt", "pad")), VALUES, max_size=3
)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]


@given(KEYS, KEYS, MEMBERS, BLANKS, st.booleans(), st.booleans(), st.sampled_from(ENCODINGS))
def test_answer_names_another_key_however_it_is_written(
    ours: str,
    named: str,
    more: dict[str, Any],
    blank: str,
    capitals: bool,
    nested: bool,
    encoding: str,
) -> None:
    said = {"key": f"{blank}{named.upper() if capitals else named}{blank}"}
    answer = {**more, "receipt": said} if nested else {**more, **said}
    body = json.dumps(answer).encode(encoding)
    assert other_key(body, ours) == (None if named == ours else named)
    assert other_key(body, named) is None


@given(
    KEYS, KEYS, MEMBERS, st.integers(0, 200), st.booleans(), st.sampled_from(["utf-8", "utf-16"])
)
def test_answer_that_is_cut_names_another_key_unless_it_names_ours_too(
    ours: str, named: str, more: dict[str, Any], pad: int, both: bool, encoding: str
) -> None:
    said = [{"key": named}, *([{"key": ours}] if both else [])]
    whole = json.dumps({**more, "receipt": said, "pad": "x" * (RESPONSE_BYTES_READ_MAX + pad)})
    body = whole.encode(encoding)[:RESPONSE_BYTES_READ_MAX]
    assert other_key(body, ours) == (None if both or named == ours else named)


@given(KEYS, KEYS, MEMBERS, st.integers(0), st.sampled_from([b"\xff", b"\x80", b"\xc3("]))
def test_answer_that_is_damaged_names_another_key(
    ours: str, named: str, more: dict[str, Any], at: int, damage: bytes
) -> None:
    members = json.dumps(more).encode()
    at %= len(members) + 1
    body = b'{"more": %s%s%s, "key": "%s"}' % (members[:at], damage, members[at:], named.encode())
    assert other_key(body, ours) == (None if named == ours else named)


@given(KEYS, KEYS, st.sampled_from(["list", "nested", "deep"]))
def test_answer_that_tells_of_other_keys_elsewhere_names_none(
    ours: str, named: str, where: str
) -> None:
    said = {"key": named}
    bodies = {"list": [said], "nested": {"earlier": said}, "deep": {"receipt": {"before": said}}}
    assert other_key(json.dumps(bodies[where]).encode(), ours) is None


@given(KEYS, st.binary())
def test_no_answer_breaks_the_search_for_a_key(ours: str, body: bytes) -> None:
    assert other_key(body, ours) is None
    assert other_key(b'{"key": "' + body, ours) is None
