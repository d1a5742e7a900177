"""What `holdfast listen` prints: amounts for people, and nothing that steers a terminal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dispatcher.cli.workbench.listen_output import (
    MEMBERS_MAX,
    add_command,
    arrival_json,
    arrival_text,
    data_text,
    report_json,
    report_text,
    url_of,
)
from holdfast.dispatcher.workbench.listen.arrival import REFUSED, Arrival
from holdfast.dispatcher.workbench.listen.record import Record

NOW = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
HOSTILE = "m\x1b[2J\u202e\r\nx"


def arrival(subject: str = "m_1", sequence: int = 1, **data: Any) -> Arrival:
    return Arrival(
        1, NOW, "applied", 200, 9, type="a.b", subject=subject, sequence=sequence, key="hf_1",
        timestamp=NOW, data=data,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"currency": "JPY", "fee_minor": -1234}, "fee -1,234 JPY"),
        ({"currency": "KWD", "fee_minor": 1}, "fee 0.001 KWD"),
        ({"fee_minor": 5}, "fee minor 5"),
        ({"currency": "USD"}, "currency USD"),
        ({"currency": "USD", "fee_minor": True}, "currency USD, fee minor true"),
        ({"a": None, "b": [1, 2], "c": {"d": 1}}, "a -, b (2 items), c (1 members)"),
        ({}, ""),
    ],
)
def test_data_is_shown_in_one_line_with_amounts_as_people_write_them(
    data: dict[str, Any], text: str
) -> None:
    assert data_text(data) == text


def test_many_or_long_members_are_cut_short() -> None:
    text = data_text({f"n{i}": "x" * 500 for i in range(MEMBERS_MAX + 3)})
    assert text.endswith("..., and 3 more")
    assert len(text) < 2000


def test_strings_of_strangers_do_not_steer_a_terminal() -> None:
    shown = [
        arrival_text(arrival(HOSTILE, **{HOSTILE: HOSTILE, "currency": "\x1b[m", "a_minor": 1})),
        arrival_text(Arrival(1, NOW, REFUSED, 400, 9, reason="bad_body", detail=HOSTILE)),
    ]
    record = Record()
    for sequence in (1, 3):
        record.add(arrival(HOSTILE, sequence))
    shown.append(report_text(record.report()))
    for text in shown:
        assert all(each.isprintable() for line in text.split("\n") for each in line)
    assert "missing sequence 2 of m\\x1b[2J" in shown[2]


def test_report_says_zero_for_what_people_look_for() -> None:
    lines = report_text(Record().report()).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["0", "attempted:"],
        ["0", "acknowledged:"],
        ["0", "duplicated:"],
        ["0", "lost:"],
        ["0", "out"],
    ]


def test_json_has_the_data_as_it_came_and_the_report_its_lists() -> None:
    shown = arrival_json(arrival(HOSTILE, fee_minor=5))
    assert (shown["subject"], shown["data"], shown["at"]) == (
        HOSTILE,
        {"fee_minor": 5},
        "2026-11-02T12:15:00Z",
    )
    record = Record()
    for sequence in (1, 3):
        record.add(arrival("m_1", sequence))
    report = report_json(record.report())
    assert (report["event"], report["degraded"]) == ("report", True)
    assert report["missing_shown"] == [{"subject": "m_1", "sequence": 2}]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8098/webhooks"),
        ("0.0.0.0", "http://127.0.0.1:8098/webhooks"),  # noqa: S104 - what may be asked for
        ("::", "http://[::1]:8098/webhooks"),
        ("10.1.2.3", "http://10.1.2.3:8098/webhooks"),
    ],
)
def test_url_is_one_that_can_be_reached(host: str, url: str) -> None:
    assert url_of(host, 8098, "/webhooks") == url


def test_command_quotes_what_a_shell_would_read() -> None:
    command = add_command(
        "http://127.0.0.1:1/w", "127.0.0.1", ["env:A", "file:/run/a secret", "env:C"]
    )
    assert command == (
        "holdfast endpoint add listen --url http://127.0.0.1:1/w --allow-cidr 127.0.0.1/32"
        " --secret-ref env:A --secret-ref 'file:/run/a secret'"
    )
