"""What a receiver can say about deliveries from outside: doubled, lost, out of order."""

from datetime import UTC, datetime

import pytest

from holdfast.dispatcher.workbench.listen.arrival import FAILED, REFUSED, Arrival
from holdfast.dispatcher.workbench.listen.record import SHOWN_MAX, Record, Report
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
    found = report(came(4), came(5), came(1, subject="m_2"), came(6))
    assert (found.attempted, found.acknowledged, found.applied, found.subjects) == (4, 4, 4, 2)
    assert (found.lost, found.out_of_order, found.owed, found.degraded) == (0, 0, 0, False)


def test_the_same_delivery_again_is_doubled_and_harmless() -> None:
    found = report(came(1, status=None), came(1, "duplicate"), came(2))
    assert (found.attempted, found.acknowledged, found.duplicated) == (3, 2, 1)
    assert (found.cut_on_purpose, found.out_of_order, found.degraded) == (1, 0, False)


def test_a_key_with_another_body_needs_a_person() -> None:
    found = report(came(1), came(1, "conflict", 422))
    assert (found.conflicting, found.owed, found.degraded) == (1, 0, True)


def test_a_sequence_that_never_came_is_lost_unless_gaps_are_allowed() -> None:
    arrivals = came(3), came(4), came(7), came(2, subject="m_2")
    found = report(*arrivals)
    assert (found.missing_sequences, found.lost, found.degraded) == (2, 2, True)
    assert found.missing_shown == (("m_1", 5), ("m_1", 6))
    allowed = report(*arrivals, gaps_allowed=True)
    assert (allowed.missing_sequences, allowed.lost, allowed.degraded) == (2, 0, False)


def test_a_gap_as_wide_as_an_integer_is_counted_at_once() -> None:
    found = report(came(1), came(2**53 - 1))
    assert found.missing_sequences == 2**53 - 3
    assert len(found.missing_shown) == SHOWN_MAX


def test_a_new_key_after_a_higher_sequence_is_out_of_order_and_fills_its_gap() -> None:
    found = report(came(1), came(3), came(2, "stale"))
    assert (found.out_of_order, found.stale, found.lost) == (1, 1, 0)


def test_an_old_key_that_comes_again_is_a_duplicate_and_not_out_of_order() -> None:
    found = report(came(1), came(2), came(1, "duplicate"))
    assert (found.duplicated, found.out_of_order) == (1, 0)


@pytest.mark.parametrize("status", [500, 429, 408, None])
def test_going_on_before_a_delivery_was_acknowledged_is_out_of_order(status: int | None) -> None:
    outcome = "applied" if status is None else FAILED
    found = report(came(1, outcome, status), came(2))
    assert (found.out_of_order, found.owed) == (1, 1)
    repeated = report(came(1, outcome, status), came(1, "duplicate"), came(2))
    assert (repeated.out_of_order, repeated.owed) == (0, 0)


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_going_on_after_a_final_answer_is_in_order(status: int) -> None:
    found = report(came(1, FAILED, status), came(2))
    assert (found.out_of_order, found.owed, found.failed_on_purpose) == (0, 1, 1)


def test_an_answer_that_could_not_be_written_is_no_acknowledgement() -> None:
    record = Record()
    record.add(came(1))
    assert record.acknowledged == 1
    record.unanswered(came(1))
    assert record.acknowledged == 0
    record.add(came(2))
    found = record.report()
    assert (found.unanswered, found.owed, found.out_of_order) == (1, 1, 1)


def test_answer_to_a_duplicate_that_could_not_be_written_leaves_the_first_one() -> None:
    """The first answer was read; only what came again hung up."""
    record = Record()
    record.add(came(1))
    record.add(came(1, "duplicate"))
    record.unanswered(came(1, "duplicate"))
    assert record.acknowledged == 1
    record.add(came(2))
    found = record.report([key_of("m_1", 1)])
    assert (found.acknowledged, found.lost, found.owed, found.out_of_order) == (2, 0, 0, 0)
    record.unanswered(came(1))
    assert record.acknowledged == 1


def test_expected_keys_that_were_not_acknowledged_are_lost_and_named() -> None:
    record = Record()
    for arrival in (came(1), came(2, FAILED, 500), came(9, subject="m_9")):
        record.add(arrival)
    wanted = [key_of("m_1", sequence) for sequence in (1, 2, 3)]
    found = record.report(wanted)
    assert (found.expected, found.lost, found.unexpected) == (3, 2, 1)
    assert found.lost_shown == tuple(sorted(wanted[1:]))


def test_requests_of_nobody_are_counted_by_reason_and_need_a_person() -> None:
    refused = Arrival(1, NOW, REFUSED, 401, 10, reason="no_match", detail="not ours")
    found = report(refused, refused, came(1))
    assert found.refused == {"no_match": 2}
    assert (found.attempted, found.acknowledged, found.degraded) == (3, 1, True)


def test_without_a_subject_no_sequence_is_compared() -> None:
    found = report(came(5, subject=None), came(2, subject=None))
    assert (found.without_subject, found.out_of_order, found.lost) == (2, 0, 0)
