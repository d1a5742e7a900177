"""`holdfast listen`: what it can say about deliveries, how it prints them, how it misbehaves."""

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
from holdfast.dispatcher.workbench.listen.misbehaviour import Cut, Faults, Misbehaviour
from holdfast.dispatcher.workbench.listen.record import (
    FAILED,
    REFUSED,
    SHOWN_MAX,
    Arrival,
    Record,
    Report,
)
from tests.support.dispatch.sender import key_of

NOW = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)


def came(
    sequence: int, outcome: str = "applied", status: int | None = 200, subject: str | None = "m_1"
) -> Arrival:
    key = key_of(subject or "nobody", sequence)
    return Arrival(1, NOW, outcome, status, 100, subject=subject, sequence=sequence, key=key)


def report(*arrivals: Arrival, gaps_allowed: bool = False) -> Report:
    record = Record()
    for arrival in arrivals:
        record.add(arrival)
    return record.report(gaps_allowed=gaps_allowed)


def test_deliveries_in_order_leave_nothing_to_say() -> None:
    summary = report(came(4), came(5), came(1, subject="m_2"), came(6))
    assert (summary.attempted, summary.acknowledged, summary.applied, summary.subjects) == (
        4,
        4,
        4,
        2,
    )
    assert (summary.lost, summary.out_of_order, summary.owed, summary.degraded) == (0, 0, 0, False)


def test_the_same_delivery_again_is_doubled_and_harmless() -> None:
    summary = report(came(1, status=None), came(1, "duplicate"), came(2))
    assert (summary.attempted, summary.acknowledged, summary.duplicated) == (3, 2, 1)
    assert (summary.cut_on_purpose, summary.out_of_order, summary.degraded) == (1, 0, False)


def test_a_key_with_another_body_needs_a_person() -> None:
    summary = report(came(1), came(1, "conflict", 422))
    assert (summary.conflicting, summary.owed, summary.degraded) == (1, 0, True)


def test_missing_sequence_is_lost_unless_gaps_are_allowed() -> None:
    arrivals = came(3), came(4), came(7), came(2, subject="m_2")
    summary = report(*arrivals)
    assert (summary.missing_sequences, summary.lost, summary.degraded) == (2, 2, True)
    assert summary.missing_shown == (("m_1", 5), ("m_1", 6))
    allowed = report(*arrivals, gaps_allowed=True)
    assert (allowed.missing_sequences, allowed.lost, allowed.degraded) == (2, 0, False)


def test_a_gap_as_wide_as_an_integer_is_counted_at_once() -> None:
    summary = report(came(1), came(2**53 - 1))
    assert summary.missing_sequences == 2**53 - 3
    assert len(summary.missing_shown) == SHOWN_MAX


def test_new_key_after_a_higher_sequence_fills_its_gap_out_of_order() -> None:
    summary = report(came(1), came(3), came(2, "stale"))
    assert (summary.out_of_order, summary.stale, summary.lost) == (1, 1, 0)


def test_repeated_old_key_is_a_duplicate_not_out_of_order() -> None:
    summary = report(came(1), came(2), came(1, "duplicate"))
    assert (summary.duplicated, summary.out_of_order) == (1, 0)


@pytest.mark.parametrize("status", [500, 429, 408, None])
def test_next_delivery_before_an_acknowledgement_is_out_of_order(status: int | None) -> None:
    outcome = "applied" if status is None else FAILED
    summary = report(came(1, outcome, status), came(2))
    assert (summary.out_of_order, summary.owed) == (1, 1)
    repeated = report(came(1, outcome, status), came(1, "duplicate"), came(2))
    assert (repeated.out_of_order, repeated.owed) == (0, 0)


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_continuing_after_a_final_answer_is_in_order(status: int) -> None:
    summary = report(came(1, FAILED, status), came(2))
    assert (summary.out_of_order, summary.owed, summary.failed_on_purpose) == (0, 1, 1)


def test_unwritten_answer_is_no_acknowledgement() -> None:
    record = Record()
    record.add(came(1))
    assert record.acknowledged == 1
    record.unanswered(came(1))
    assert record.acknowledged == 0
    record.add(came(2))
    summary = record.report()
    assert (summary.unanswered, summary.owed, summary.out_of_order) == (1, 1, 1)


def test_unwritten_answer_to_a_duplicate_keeps_the_first_answer() -> None:
    """The first answer was read; only what came again hung up."""
    record = Record()
    record.add(came(1))
    record.add(came(1, "duplicate"))
    record.unanswered(came(1, "duplicate"))
    assert record.acknowledged == 1
    record.add(came(2))
    summary = record.report([key_of("m_1", 1)])
    assert (summary.acknowledged, summary.lost, summary.owed, summary.out_of_order) == (2, 0, 0, 0)
    record.unanswered(came(1))
    assert record.acknowledged == 1


def test_unacknowledged_expected_keys_are_lost_and_named() -> None:
    record = Record()
    for arrival in (came(1), came(2, FAILED, 500), came(9, subject="m_9")):
        record.add(arrival)
    wanted = [key_of("m_1", sequence) for sequence in (1, 2, 3)]
    summary = record.report(wanted)
    assert (summary.expected, summary.lost, summary.unexpected) == (3, 2, 1)
    assert summary.lost_shown == tuple(sorted(wanted[1:]))


def test_unattributed_requests_are_counted_by_reason() -> None:
    refused = Arrival(1, NOW, REFUSED, 401, 10, reason="no_match", detail="not ours")
    summary = report(refused, refused, came(1))
    assert summary.refused == {"no_match": 2}
    assert (summary.attempted, summary.acknowledged, summary.degraded) == (3, 1, True)


def test_without_a_subject_no_sequence_is_compared() -> None:
    summary = report(came(5, subject=None), came(2, subject=None))
    assert (summary.without_subject, summary.out_of_order, summary.lost) == (2, 0, 0)


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
def test_data_is_one_line_with_readable_amounts(data: dict[str, Any], text: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("3", Cut(count=3)),
        ("1", Cut(count=1)),
        ("0.25", Cut(share=0.25)),
        ("1.0", Cut(share=1.0)),
        ("20%", Cut(share=0.2)),
        ("100%", Cut(share=1.0)),
    ],
)
def test_cut_is_a_number_of_deliveries_or_a_share(text: str, cut: Cut) -> None:
    assert Cut.of(text) == cut


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "three", "1e0", "0.1%", "\u0663"])
def test_cut_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a share such as"):
        Cut.of(text)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Misbehaviour(status=101), "--status"),
        (Misbehaviour(status=600), "--status"),
        (Misbehaviour(fail_rate=float("nan")), "--fail-rate"),
        (Misbehaviour(fail_rate=1.1), "--fail-rate"),
        (Misbehaviour(latency_ms=-1), "--latency"),
        (Misbehaviour(retry_after_seconds=3), "--status or --fail-rate"),
        (Misbehaviour(status=503, retry_after_seconds=-1), "--retry-after"),
    ],
)
def test_settings_without_sense_are_named(asked: Misbehaviour, says: str) -> None:
    assert says in (asked.fault() or "")


def test_fixed_status_is_for_every_delivery_and_a_2xx_applies() -> None:
    failing, accepting = (Faults(Misbehaviour(status=status), 1).turn() for status in (503, 204))
    assert (failing.status, failing.applies) == (503, False)
    assert (accepting.status, accepting.applies) == (204, True)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Misbehaviour(fail_rate=1), 500),
        (Misbehaviour(fail_rate=1, retry_after_seconds=2), 503),
        (Misbehaviour(fail_rate=1, status=429), 429),
    ],
)
def test_failure_has_the_status_that_goes_with_it(asked: Misbehaviour, status: int) -> None:
    assert Faults(asked, 1).turn().status == status


def test_a_share_is_drawn_and_the_same_seed_draws_the_same() -> None:
    asked = Misbehaviour(fail_rate=0.3, cut=Cut(share=0.2))

    def turns(seed: int) -> list[tuple[int | None, bool]]:
        faults = Faults(asked, seed)
        return [(turn.status, turn.cut) for turn in (faults.turn() for _ in range(1000))]

    assert turns(7) == turns(7) != turns(8)
    assert 250 < sum(status == 500 for status, _ in turns(7)) < 350
    assert 150 < sum(cut for _, cut in turns(7)) < 250


def test_a_number_of_cuts_counts_only_those_that_were_made() -> None:
    faults = Faults(Misbehaviour(cut=Cut(count=2)), 1)
    assert faults.turn().cut
    assert faults.turn().cut  # the first was not applied, so nothing was cut
    faults.cut_made()
    faults.cut_made()
    assert not faults.turn().cut
