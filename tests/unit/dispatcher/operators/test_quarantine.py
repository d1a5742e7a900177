"""Which row of the quarantine can be put back which way, corrected by whom."""

import json
import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer
from hypothesis import strategies

from holdfast.dispatcher.cli.output import open_output, shortened, visible, whole_file
from holdfast.dispatcher.cli.quarantine.commands import texts_of
from holdfast.dispatcher.cli.quarantine.row_files import write_lines
from holdfast.dispatcher.operators.common.person import needs_approval, person_of
from holdfast.dispatcher.operators.quarantine.rules import (
    ENTRY_REASONS,
    differences,
    identity,
    is_entry,
    what_helps,
    why_not_as_kept,
)
from holdfast.sink.contract.canonical import canonical_json
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason
from tests.support.refusal import raises_code

CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})


def _row(reason: str, text: str, number: int = 1) -> dict[str, Any]:
    return {"id": number, "reason": reason, "row": text}


@pytest.mark.parametrize(
    ("reason", "text", "complaint"),
    [
        ("bad_data", CUT, "too long to be kept in full"),
        ("malformed", CUT, "too long to be kept in full"),
        ("bad_subject", json.dumps({"subject": r"m\xff"}), "not UTF-8"),
        ("malformed", "a\nb", "line breaks"),
        ("malformed", "a\rb", "line breaks"),
    ],
)
def test_text_unlike_its_row_is_not_requeued(reason: str, text: str, complaint: str) -> None:
    assert complaint in (why_not_as_kept(_row(reason, text)) or "")
    with raises_code("row_needs_correction"):
        texts_of([_row(reason, text)], None, lines=reason == "malformed")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("bad_data", json.dumps({"subject": "m_1", "data": {"path": "C:\\x12"}})),
        ("malformed", "{"),
        ("malformed", json.dumps({"cut": True, "event_id": "e1"})),
        ("malformed", '{"cut": true, "bytes": '),
    ],
)
def test_any_other_text_is_requeued_unchanged(reason: str, text: str) -> None:
    row = _row(reason, text)
    assert texts_of([row], None, lines=reason == "malformed") == {1: text}


@pytest.mark.parametrize("reason", [each for each in QuarantineReason if each != "rejected"])
def test_every_reason_has_exactly_one_way_back(reason: QuarantineReason) -> None:
    lines = reason not in ENTRY_REASONS
    assert texts_of([_row(reason, "{}")], None, lines=lines)
    with pytest.raises(CommandError, match="Nothing was changed") as raised:
        texts_of([_row(reason, "{}")], None, lines=not lines)
    assert raised.value.exit_code == ExitCode.USAGE


ENTRY = json.dumps(
    {"subject": "m_1", "type": "a", "key": ["k"], "occurred_at": "2026-11-02T12:15:00Z", "data": {}}
)


@pytest.mark.parametrize(
    ("text", "entry"),
    [(ENTRY, True), (CUT, True), ('{"order": 17}', False), ("raw", False), ("[]", False)],
    ids=["entry", "cut", "source row", "text", "list"],
)
def test_rejected_row_goes_back_where_its_text_fits(text: str, entry: bool) -> None:
    row = _row("rejected", text) | {"rule": "no_such_order"}
    assert is_entry(row) is entry
    with pytest.raises(CommandError, match=r"\(rejected: no_such_order\)") as raised:
        texts_of([row], None, lines=entry)
    assert raised.value.code == "wrong_destination"


def test_corrected_row_is_for_one_number(tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    file.write_text('\ufeff{\n "a": 1\n}\n')
    assert texts_of([_row("bad_data", CUT)], file, lines=False) == {1: '{\n "a": 1\n}'}
    assert texts_of([_row("malformed", CUT)], file, lines=True) == {1: '{  "a": 1 }'}
    with raises_code("invalid_file"):
        texts_of([_row("bad_data", "{}"), _row("bad_data", "{}", 2)], file, lines=False)
    file.write_text(" \n")
    with pytest.raises(CommandError, match="is empty"):
        texts_of([_row("bad_data", "{}")], file, lines=False)
    file.write_bytes(b"x" * (2**20 + 1))
    with raises_code("file_too_large"):
        texts_of([_row("bad_data", "{}")], file, lines=False)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": "\xff"}', r"is not UTF-8 text \(byte 7\)"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8 text"),
        (b'%b\n{"id": 2', "line 2 is not a JSON object"),
        (b'%b\n{"id": 2}', "line 2 is not a JSON object"),
        (b"%b\n%b", "row 1 is duplicate"),
    ],
)
def test_unusable_corrected_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    line = json.dumps({"id": 1, "batch_no": 1, "quarantined_at": "", "row": "{}"})
    file = tmp_path / "row.json"
    file.write_bytes(content.replace(b"%b", line.encode()))
    with pytest.raises(CommandError, match=complaint) as raised:
        texts_of([_row("bad_data", "{}")], file, lines=False)
    assert str(file) in str(raised.value)
    assert raised.value.exit_code == ExitCode.USAGE


def test_uncorrected_exported_line_is_no_better_than_the_row(tmp_path: Path) -> None:
    row = _row("bad_data", CUT) | {"batch_no": 1, "quarantined_at": ""}
    file = tmp_path / "row.json"
    file.write_text(json.dumps(row))
    with pytest.raises(CommandError, match="too long to be kept in full"):
        texts_of([row], file, lines=False)
    file.write_text(json.dumps(row | {"row": {"a": ["é"]}}))
    assert texts_of([row], file, lines=False) == {1: '{"a": ["é"]}'}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_exported_lines_end_where_the_export_ended_them(tmp_path: Path, separator: str) -> None:
    rows = [_row("bad_data", json.dumps({"note": separator}), number) for number in (1, 2)]
    exported = [row | {"batch_no": 1, "quarantined_at": "", "detail": separator} for row in rows]
    corrected = [row | {"row": json.loads(row["row"])} for row in exported]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in corrected))
    assert {
        number: json.loads(text) for number, text in texts_of(rows, file, lines=False).items()
    } == {1: {"note": separator}, 2: {"note": separator}}


def test_each_line_is_written_once_under_a_derived_name(tmp_path: Path) -> None:
    first, second = write_lines(tmp_path, {1: '{"a": "é"}', 2: "{"})
    assert first.read_bytes() == '{"a": "é"}\n'.encode()
    written = first.stat().st_mtime_ns
    assert write_lines(tmp_path, {1: '{"a": "é"}'}) == [first]
    assert write_lines(tmp_path, {2: "{", 3: "{"})[0] == second
    assert first.stat().st_mtime_ns == written
    assert len(list(tmp_path.iterdir())) == 3


def test_lines_go_to_no_directory_that_could_not_take_them(tmp_path: Path) -> None:
    with raises_code("invalid_directory"):
        write_lines(tmp_path / "nowhere", {1: "{}"})
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(CommandError, match="Parquet files"):
        write_lines(tmp_path, {1: "{}"})


def test_file_that_was_not_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("before")

    def write() -> None:
        with whole_file(path) as file:
            file.write("half")
            [part] = set(tmp_path.iterdir()) - {path}
            assert part.name.startswith(".")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


def test_row_names_the_command_that_requeues_it() -> None:
    entry, _ = what_helps({"id": 7, "reason": QuarantineReason.BAD_DATA})
    assert entry.command == "holdfast quarantine requeue 7 --row FILE --reason TEXT"
    line, dismiss = what_helps({"id": 7, "reason": QuarantineReason.MALFORMED})
    assert "--into DIRECTORY" in line.command
    assert dismiss.command == "holdfast quarantine dismiss 7 --reason TEXT"


def test_untrusted_text_is_shown_without_terminal_controls() -> None:
    assert visible("é m_1\x1b[2J\u202e\x9b\n") == r"é m_1\x1b[2J\u202e\x9b\n"
    assert shortened("x" * 3000).startswith("x" * 2000 + " ... (3,000 characters")


def test_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text("before")
    link.symlink_to(target)
    with whole_file(link) as file:
        file.write("after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_what_is_no_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(pipe) as file:
            file.write("row")
        assert os.read(reader, 10) == b"row"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_pipe_without_a_name_of_its_own_is_written_to() -> None:
    reader, writer = os.pipe()
    try:
        with whole_file(Path(f"/dev/fd/{writer}")) as file:
            file.write("row")
        assert os.read(reader, 10) == b"row"
    finally:
        os.close(reader)
        os.close(writer)


def test_reader_of_a_pipe_may_leave_when_it_has_seen_enough() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with pytest.raises(typer.Exit) as left, open_output(Path(f"/dev/fd/{writer}")) as file:
            file.write("row")
    finally:
        os.close(writer)
    assert left.value.exit_code == ExitCode.OK


def test_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with whole_file(path) as file:
        file.write("row")
    assert path.read_text() == "row"


@pytest.mark.parametrize(
    ("path", "words"), [(".", "is a directory"), ("gone/rows.jsonl", "does not exist")]
)
def test_place_where_no_file_can_be_is_one_line(tmp_path: Path, path: str, words: str) -> None:
    with pytest.raises(CommandError, match=words) as raised, whole_file(tmp_path / path) as file:
        file.write("row")
    assert raised.value.exit_code == ExitCode.USAGE
    assert not list(tmp_path.iterdir())


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


def _differ(reason: str, kept: object, value: object) -> list[str]:
    row = {"reason": reason, "row": kept if isinstance(kept, str) else json.dumps(kept)}
    text = value if isinstance(value, str) else json.dumps(value)
    return [each.member for each in differences(row, text)]


@pytest.mark.parametrize(
    ("values", "member"),
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
def test_other_member_is_another_decision(values: dict[str, Any], member: str) -> None:
    assert _differ("bad_data", ENTRY, values) == [member]


def test_priority_and_spelling_are_no_other_decision() -> None:
    entry = ENTRY | {"priority": 5, "occurred_at": "2026-11-02T13:15:00+01:00"}
    assert _differ("bad_data", ENTRY, entry) == []
    assert _differ("key_conflict", ENTRY, json.dumps(ENTRY, indent=1)) == []


@pytest.mark.parametrize(
    ("kept", "value", "members"),
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
def test_readable_data_is_of_the_decision(kept: Any, value: Any, members: list[str]) -> None:
    text = json.dumps(ENTRY | {"data": value}, indent=1)
    assert _differ("bad_data", ENTRY | {"data": kept}, text) == members


@pytest.mark.parametrize("kept", ["1.5", "NaN", "-Infinity", "1e3", str(2**53), str(-(10**30))])
@pytest.mark.parametrize("value", [15, "1.50", 2.5])
def test_non_canonical_number_is_corrected_by_one_person(kept: str, value: object) -> None:
    text = json.dumps(ENTRY | {"data": {"x": [{"minor": "?"}], "y": "z"}}).replace('"?"', kept)
    mended = ENTRY | {"data": {"x": [{"minor": value}], "y": "z"}}
    assert _differ("bad_data", text, mended) == []


def test_absent_or_deeply_nested_data_is_decided_by_hand() -> None:
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
def test_canonical_data_is_corrected_only_to_itself(kept: Any, other: Any) -> None:
    result = _differ("bad_data", ENTRY | {"data": kept}, json.dumps(ENTRY | {"data": other}) + " ")
    assert (result == []) == (canonical_json(kept) == canonical_json(other))


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
    entry = ENTRY | {"subject": kept["subject"]} if isinstance(kept, dict) else ENTRY
    assert "subject" in _differ("bad_subject", kept, {**entry, "priority": 2})


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
def test_reason_allows_only_its_own_member(reason: str, frees: str | None) -> None:
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


def test_stored_text_is_the_decision_itself() -> None:
    assert _differ("malformed", "{", "{") == []


def test_person_has_one_spelling_and_ten_are_not_eleven() -> None:
    assert {person_of(each) for each in ("alice", "token alice", " Alice\t")} == {"alice"}
    assert [needs_approval(*each, 10) for each in ((10, 0), (10, 1), (11, 0), (0, 99))] == [
        False,
        True,
        True,
        False,
    ]


def test_only_the_time_of_a_future_dated_row_is_corrected() -> None:
    far = ENTRY | {"occurred_at": "9999-01-01T00:00:00Z"}
    assert _differ("future_dated", far, ENTRY) == []
    assert _differ("future_dated", far, ENTRY | {"subject": "m_2"}) == ["subject"]
    assert _differ("future_dated", far, ENTRY | {"key": ["k", "2"]}) == ["key"]
    assert _differ("bad_data", far, ENTRY) == ["occurred_at"]
