"""Subjects for a person: a name in a command is the name, to the letter."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dispatcher.cli import subjects
from holdfast.dispatcher.cli.output import Page, print_page, print_rows

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
FOUND: dict[str, Any] = {
    "last_sequence": 1,
    "last_type": "payout_hold.block",
    "last_occurred_at": NOW,
    "last_written_at": NOW,
    "transitions": [],
    "entries": [],
}
LANE: dict[str, Any] = {
    "endpoint": "payouts",
    "endpoint_state": "active",
    "state": "due",
    "held": "retrying",
    "delivered_sequence": 0,
    "last_sequence": 1,
    "waiting": 1,
    "attempt": 0,
    "due_at": NOW,
    "head_sequence": 1,
    "head_type": "payout_hold.block",
    "lease_until": None,
    "dead_letter": None,
    "breaker": "closed",
    "held_until": None,
}
NAMES = [
    ("m_1", "m_1"),
    ("m  two", "'m  two'"),
    ("m\ttab", r"$'m\x09tab'"),
    ("whsec_abcdefgh", "whsec_abcdefgh"),
]


@pytest.mark.parametrize(("name", "word"), [*NAMES, ("-x", "-x")])
def test_next_page_begins_behind_the_name_to_the_letter(
    name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page("subjects", [], name, option="after")
    print_page(page, subjects.print_list, "", as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"more rows: --after {word}")


@pytest.mark.parametrize(("name", "word"), [*NAMES, ("-x", "-- -x")])
def test_subject_that_waits_is_asked_about_to_the_letter(
    name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    subjects.print_subject({**FOUND, "name": name, "lanes": [LANE]})
    assert f"what it waits for: holdfast why {word}\n" in capsys.readouterr().out


def test_list_escapes_what_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"merchant": "m\x1b[2J", "names": ["a\u202eb"], "lines": "one\ntwo\x9b"}
    print_rows([row], tuple(row), "Events")
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert all(words in shown for words in (r"m\x1b[2J", r"a\u202eb", r"two\x9b"))
