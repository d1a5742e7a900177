"""How a check counts, how it chooses its pieces, and which days it leaves out."""

from datetime import UTC, date, datetime, timedelta

import pytest

from holdfast.dispatcher.operators.check import actions as checking
from holdfast.dispatcher.operators.check.rules import (
    INVARIANT,
    MEANING,
    OF_RECEIPTS,
    Checked,
    Rule,
    Violation,
    next_width,
    unbroken_since,
)
from holdfast.dispatcher.operators.check.store import Checks, Range, TooMuchAtOnceError
from holdfast.dispatcher.operators.receipts.rules import NEEDS_A_PERSON
from holdfast.sink.contract.exits import CommandError

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
RANGE = Range(
    since=NOON,
    until=NOON + timedelta(hours=1),
    entries_since=NOON,
    attempts_since=NOON,
    delivery_since=NOON,
    suppressed_since=NOON,
    attempts_kept=NOON,
    dropped=False,
    endpoints=(),
    endpoint="payouts",
    stream=None,
    batches=0,
    first_batch_no=0,
    last_batch_no=0,
    last_subject=10_000,
)


def test_every_rule_is_of_an_invariant_and_says_what_to_do() -> None:
    assert set(INVARIANT) == set(MEANING) == set(Rule)
    assert all(meaning.endswith(".") and meaning.count(".") >= 2 for meaning in MEANING.values())


def test_every_difference_from_a_receiver_that_needs_a_person_violates_a_rule() -> None:
    assert set(OF_RECEIPTS) == NEEDS_A_PERSON


def test_pieces_are_added_up_and_only_the_first_rows_are_kept() -> None:
    whole = Checked(limit=2)
    for name in ("a", "b", "c"):
        piece = Checked(limit=2)
        piece.count("lanes_due", 5, NOON + timedelta(minutes=ord("c") - ord(name)))
        piece.found(Rule.LANE_STATE, 3, [Violation(Rule.LANE_STATE, name)])
        whole.add(piece)
    assert whole.counted["lanes_due"] == 15
    assert whole.oldest["lanes_due"] == NOON
    assert whole.violated[Rule.LANE_STATE] == 9
    assert [row.detail for row in whole.kept[Rule.LANE_STATE]] == ["a", "b"]
    assert not whole.holds


def test_days_that_are_there_without_a_gap_begin_after_the_last_that_was_dropped() -> None:
    kept_for_something = date(2026, 10, 1)
    days = [kept_for_something, *(date(2026, 11, day) for day in (3, 4, 5))]
    assert unbroken_since(days) == datetime(2026, 11, 3, tzinfo=UTC)
    assert unbroken_since(days[:1]) == datetime(2026, 10, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "wanted"), [(0.0, 400), (1.0, 100), (3.0, 33), (1000.0, 1)], ids=str
)
def test_next_piece_takes_as_long_as_wanted(seconds: float, wanted: int) -> None:
    assert next_width(100, seconds, 1.0) == wanted


class Slow(Checks):
    """Statements that take too long for more than so many subjects."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.done: list[tuple[int, int]] = []

    def subjects(self, range_: Range, first: int, last: int, checked: Checked) -> None:
        assert range_ is RANGE
        assert checked.holds
        if last - first + 1 > self.most:
            raise TooMuchAtOnceError
        self.done.append((first, last))

    def rest(self, range_: Range, checked: Checked) -> None:
        """Check nothing."""


def test_piece_that_takes_too_long_is_taken_again_in_smaller_ones() -> None:
    store = Slow(500)
    checking.check([store], RANGE, Checked(20), lambda _what, _done, _total: None)
    begins = [first for first, _ in store.done]
    ends = [last for _, last in store.done]
    assert begins == [1, *(last + 1 for last in ends[:-1])], "no subject is left out, none twice"
    assert ends[-1] >= RANGE.last_subject


def test_database_that_is_too_slow_for_the_smallest_piece_is_said() -> None:
    with pytest.raises(CommandError, match="too long for the smallest piece"):
        checking.check([Slow(0)], RANGE, Checked(20), lambda _what, _done, _total: None)
