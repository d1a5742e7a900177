"""Which row of the quarantine can be put back which way, and how lines reach a job."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dispatcher.cli.quarantine_files import whole_file, write_lines
from dispatcher.cli.quarantine_requeue import texts_of
from dispatcher.cli.shown import shortened, visible
from dispatcher.core.quarantine import ENTRY_REASONS, why_not_as_kept
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineReason

CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})


def _row(reason: str, text: str, number: int = 1) -> dict[str, Any]:
    return {"id": number, "reason": reason, "row": text}


@pytest.mark.parametrize(
    ("reason", "text", "complaint"),
    [
        ("bad_data", CUT, "too long to be kept whole"),
        ("malformed", CUT, "too long to be kept whole"),
        ("bad_subject", json.dumps({"subject": r"m\xff"}), "not UTF-8"),
        ("malformed", "a\nb", "line breaks"),
        ("malformed", "a\rb", "line breaks"),
    ],
)
def test_text_that_does_not_stand_for_its_row_is_not_put_back(
    reason: str, text: str, complaint: str
) -> None:
    assert complaint in (why_not_as_kept(_row(reason, text)) or "")
    with pytest.raises(CommandError, match="cannot be put back as it was kept"):
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
def test_any_other_text_is_put_back_as_it_was_kept(reason: str, text: str) -> None:
    row = _row(reason, text)
    assert texts_of([row], None, lines=reason == "malformed") == {1: text}


@pytest.mark.parametrize("reason", list(QuarantineReason))
def test_every_reason_has_exactly_one_way_back(reason: QuarantineReason) -> None:
    lines = reason not in ENTRY_REASONS
    assert texts_of([_row(reason, "{}")], None, lines=lines)
    with pytest.raises(CommandError, match="Nothing was changed") as raised:
        texts_of([_row(reason, "{}")], None, lines=not lines)
    assert raised.value.exit_code == ExitCode.USAGE


def test_corrected_row_is_for_one_number(tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    file.write_text('\ufeff{\n "a": 1\n}\n')
    assert texts_of([_row("bad_data", CUT)], file, lines=False) == {1: '{\n "a": 1\n}'}
    assert texts_of([_row("malformed", CUT)], file, lines=True) == {1: '{  "a": 1 }'}
    with pytest.raises(CommandError, match="2 rows are named"):
        texts_of([_row("bad_data", "{}"), _row("bad_data", "{}", 2)], file, lines=False)
    file.write_text(" \n")
    with pytest.raises(CommandError, match="is empty"):
        texts_of([_row("bad_data", "{}")], file, lines=False)
    file.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(CommandError, match="more than"):
        texts_of([_row("bad_data", "{}")], file, lines=False)


def test_each_line_is_written_once_whole_under_a_name_that_follows_from_it(tmp_path: Path) -> None:
    first, second = write_lines(tmp_path, {1: '{"a": "é"}', 2: "{"})
    assert first.read_bytes() == '{"a": "é"}\n'.encode()
    written = first.stat().st_mtime_ns
    assert write_lines(tmp_path, {1: '{"a": "é"}'}) == [first]
    assert write_lines(tmp_path, {2: "{", 3: "{"})[0] == second
    assert first.stat().st_mtime_ns == written
    assert len(list(tmp_path.iterdir())) == 3


def test_lines_go_to_no_directory_that_could_not_take_them(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not a directory"):
        write_lines(tmp_path / "nowhere", {1: "{}"})
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(CommandError, match="holds Parquet files"):
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


def test_text_of_a_stranger_is_shown_without_what_drives_a_terminal() -> None:
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


@pytest.mark.parametrize(
    ("path", "words"), [(".", "is a directory"), ("gone/rows.jsonl", "is not there")]
)
def test_place_where_no_file_can_be_is_one_line(tmp_path: Path, path: str, words: str) -> None:
    with (
        pytest.raises(CommandError, match=words) as raised,
        whole_file(tmp_path / path) as file,
    ):
        file.write("row")
    assert raised.value.exit_code == ExitCode.USAGE
    assert not list(tmp_path.iterdir())
