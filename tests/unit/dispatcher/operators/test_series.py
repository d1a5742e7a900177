"""Counts of minutes become a series without gaps, and names with one prefix stand together."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.operators.overview.rules import series
from dispatcher.operators.subjects.rules import beyond

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = int(NOON.timestamp()) // 60

texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_series_has_every_minute_and_its_sums() -> None:
    tried = [(MINUTE, "failed", 2), (MINUTE + 2, "delivered", 5), (MINUTE + 2, "failed", 1)]
    written = [(MINUTE + 1, 7), (MINUTE - 1, 100), (MINUTE + 9, 100)]
    rows, totals = series(NOON, NOON.replace(minute=2, second=59), tried, written)
    assert [row.minute.minute for row in rows] == [0, 1, 2]
    assert [row.entries for row in rows] == [0, 7, 0]
    assert [row.attempts for row in rows] == [2, 0, 6]
    assert [row.deliveries for row in rows] == [0, 0, 5]
    assert rows[2].outcomes == {"delivered": 5, "failed": 1}
    assert totals == {
        "entries": 7,
        "attempts": 8,
        "deliveries": 5,
        "outcomes": {"delivered": 5, "failed": 3},
    }


@given(texts, texts)
def test_everything_that_begins_with_a_prefix_is_before_what_is_beyond(
    prefix: str, text: str
) -> None:
    end = beyond(prefix)
    inside = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
    assert inside == text.startswith(prefix)
