"""Which corrected rows are the kept row's own decision, and who is the same person."""

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from holdfast.dispatcher.operators.common.person import needs_approval, person_of
from holdfast.dispatcher.operators.quarantine.rules import differences, identity
from holdfast.sink.contract.canonical import canonical_json

ENTRY: dict[str, Any] = {
    "subject": "m_1",
    "type": "payout_hold.block",
    "key": ["k", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"x": 1},
}
EVENT: dict[str, Any] = {
    "event_id": "e1",
    "merchant_id": "m_1",
    "occurred_at": "2026-11-02 12:15:00",
}


def _differ(reason: str, kept: object, given: object) -> list[str]:
    row = {"reason": reason, "row": kept if isinstance(kept, str) else json.dumps(kept)}
    text = given if isinstance(given, str) else json.dumps(given)
    return [each.member for each in differences(row, text)]


@pytest.mark.parametrize(
    ("given", "member"),
    [
        (ENTRY | {"subject": "m_1 "}, "subject"),
        (ENTRY | {"subject": "M_1"}, "subject"),
        (ENTRY | {"key": ["k", "2"]}, "key"),
        (ENTRY | {"key": ["k"]}, "key"),
        (ENTRY | {"type": "payout_hold.release"}, "type"),
        (ENTRY | {"occurred_at": "2026-11-02T12:15:00.000001Z"}, "occurred_at"),
        (ENTRY | {"occurred_at": None}, "occurred_at"),
    ],
)
def test_other_member_is_another_decision(given: dict[str, Any], member: str) -> None:
    assert _differ("bad_data", ENTRY, given) == [member]


def test_priority_and_spelling_are_no_other_decision() -> None:
    given = ENTRY | {"priority": 5, "occurred_at": "2026-11-02T13:15:00+01:00"}
    assert _differ("bad_data", ENTRY, given) == []
    assert _differ("key_conflict", ENTRY, json.dumps(ENTRY, indent=1)) == []


@pytest.mark.parametrize(
    ("kept", "given", "members"),
    [
        ({"m": "m_9"}, {"m": "m_1"}, ["data.m"]),
        ({"m": "m_9"}, {"m": "m_9", "action": "release"}, ["data.action"]),
        ({"m": "m_9", "n": None}, {"m": "m_9"}, ["data.n"]),
        ({"m": 1}, {"m": True}, ["data.m"]),
        ({"m": 1}, {"m": 1.0}, ["data.m"]),
        ({"m": {"id": "m_9", "x": 1.5}}, {"m": {"id": "m_1", "x": 1}}, ["data.m"]),
        ({"m": ["m_9", 1.5]}, {"m": ["m_9", 1, "m_1"]}, ["data.m"]),
        ({"m": "m_\\xff"}, {"m": "m_\\xff"}, ["data.m"]),
        ({"m": "m_\\xff"}, {"m": "m_1"}, ["data.m"]),
        ({"m": "m_\0"}, {"m": "m_1"}, ["data.m"]),
        ({"m": 1.5}, {"m": "m_1"}, ["data.m"]),
        ({"m": 1.5}, {"m": {"id": "m_1"}}, ["data.m"]),
        ({"x": 1.5, "m": "m_9"}, {"x": 1, "m": "m_1"}, ["data.m"]),
        (None, {"m": "m_1"}, ["data"]),
        ("{}", {"m": "m_1"}, ["data"]),
        ({"m": "m_9"}, None, ["data"]),
    ],
)
def test_readable_data_is_of_the_decision(kept: Any, given: Any, members: list[str]) -> None:
    text = json.dumps(ENTRY | {"data": given}, indent=1)
    assert _differ("bad_data", ENTRY | {"data": kept}, text) == members


@pytest.mark.parametrize("kept", ["1.5", "NaN", "-Infinity", "1e3", str(2**53), str(-(10**30))])
@pytest.mark.parametrize("given", [15, "1.50", 2.5])
def test_number_that_is_not_canonical_is_corrected_alone(kept: str, given: object) -> None:
    text = json.dumps(ENTRY | {"data": {"x": [{"minor": "?"}], "y": "z"}}).replace('"?"', kept)
    mended = ENTRY | {"data": {"x": [{"minor": given}], "y": "z"}}
    assert _differ("bad_data", text, mended) == []


def test_data_that_is_absent_or_nested_too_deeply_is_decided_by_hand() -> None:
    absent = {name: value for name, value in ENTRY.items() if name != "data"}
    assert _differ("bad_data", absent, ENTRY) == ["data"]
    deep = json.dumps(ENTRY).replace('{"x": 1}', '{"x": ' + "[" * 400 + "1" + "]" * 400 + "}")
    assert _differ("bad_data", deep, deep + " ") == ["data.x"]


_VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**53) + 1, 2**53 - 1)
    | strategies.text("ab1é", max_size=3),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
_DATA = strategies.dictionaries(strategies.text("abc", max_size=2), _VALUES, max_size=4)


@hypothesis.given(_DATA, _DATA)
def test_canonical_data_is_corrected_alone_only_to_itself(kept: Any, other: Any) -> None:
    found = _differ("bad_data", ENTRY | {"data": kept}, json.dumps(ENTRY | {"data": other}) + " ")
    assert (found == []) == (canonical_json(kept) == canonical_json(other))


def test_key_conflict_with_another_key_is_another_decision() -> None:
    assert _differ("key_conflict", ENTRY, ENTRY | {"key": ["k", "2"]}) == ["key"]


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"cut": true, "bytes": 9, "beginning": "{"}'])
def test_text_that_cannot_be_read_differs_in_all_but_the_time(text: str) -> None:
    assert _differ("bad_data", text, ENTRY) == ["subject", "type", "key", "data"]
    row = {"reason": "bad_data", "row": text}
    assert identity(row, text)["subject"] is None


@pytest.mark.parametrize(
    "kept",
    [
        ENTRY | {"subject": "m\\xff"},
        ENTRY | {"subject": "m\ud800"},
        ENTRY | {"subject": ""},
        ENTRY | {"subject": None},
        ENTRY | {"subject": 1},
        '{"subject": "m_2", ' + json.dumps(ENTRY)[1:],
    ],
)
def test_subject_that_is_unreadable_never_equals_anything(kept: object) -> None:
    given = ENTRY | {"subject": kept["subject"]} if isinstance(kept, dict) else ENTRY
    assert "subject" in _differ("bad_subject", kept, {**given, "priority": 2})


def test_event_of_a_source_is_its_merchant_its_id_and_its_time() -> None:
    assert _differ("wrong_currency", EVENT, EVENT | {"amount_minor": 1}) == []
    assert _differ("wrong_currency", EVENT, EVENT | {"merchant_id": "m_2"}) == ["merchant_id"]
    assert _differ("wrong_currency", EVENT, EVENT | {"event_id": "e2"}) == ["event_id"]
    same = EVENT | {"occurred_at": "2026-11-02T12:15:00Z", "x": 1}
    assert _differ("wrong_currency", EVENT, same) == []
    later = EVENT | {"occurred_at": "2026-11-02T12:30:00Z"}
    assert _differ("wrong_currency", EVENT, later) == ["occurred_at"]
    assert _differ("time_out_of_range", EVENT, later) == []


@pytest.mark.parametrize(
    ("reason", "frees"),
    [
        ("wrong_currency", "currency"),
        ("bad_amount", "amount_minor"),
        ("missing_amount", "amount_minor"),
        ("amount_out_of_range", "amount_minor"),
        ("missing_type", "type"),
        ("bad_time", "occurred_at"),
        ("missing_merchant", None),
    ],
)
def test_reason_frees_its_own_member_alone(reason: str, frees: str | None) -> None:
    kept = EVENT | {"type": "payment", "amount_minor": 100, "currency": "EUR"}
    other = {
        "type": "chargeback",
        "amount_minor": -(10**14),
        "currency": "USD",
        "occurred_at": "2026-11-02 12:30:00",
    }
    for name, value in other.items():
        assert _differ(reason, kept, kept | {name: value}) == [name] * (name != frees)
        absent = {each: value for each, value in kept.items() if each != name}
        assert _differ(reason, kept, absent) == [name] * (name != frees)
        assert _differ(reason, absent, kept) == []


def test_text_as_it_was_kept_is_the_decision_itself() -> None:
    assert _differ("malformed", "{", "{") == []


def test_person_has_one_spelling_and_ten_are_not_eleven() -> None:
    assert {person_of(each) for each in ("alice", "token alice", " Alice\t")} == {"alice"}
    assert [needs_approval(*each, 10) for each in ((10, 0), (10, 1), (11, 0), (0, 99))] == [
        False,
        True,
        True,
        False,
    ]


def test_time_of_a_row_that_was_dated_ahead_is_corrected_alone_and_nothing_else() -> None:
    far = ENTRY | {"occurred_at": "9999-01-01T00:00:00Z"}
    assert _differ("future_dated", far, ENTRY) == []
    assert _differ("future_dated", far, ENTRY | {"subject": "m_2"}) == ["subject"]
    assert _differ("future_dated", far, ENTRY | {"key": ["k", "2"]}) == ["key"]
    assert _differ("bad_data", far, ENTRY) == ["occurred_at"]
