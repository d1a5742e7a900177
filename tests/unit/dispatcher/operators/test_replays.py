"""Filters of replays, times as people write them, and the key of a reissued decision."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.operators.common.times import exact, when
from holdfast.dispatcher.operators.reissue.rules import (
    batch_id_of,
    entry_text,
    parts_behind,
    parts_of,
)
from holdfast.dispatcher.operators.replays.rules import (
    KEYS_MAX,
    ReplayFilter,
    ReplayFilterError,
    ReplayScope,
    filter_stored,
)
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

NOON = datetime(2025, 11, 3, 12, tzinfo=UTC)
WHOLE = ReplayFilter(
    endpoint="payouts",
    subject="m_482",
    stream="payouts",
    first_batch=3,
    last_batch=9,
    since=NOON,
    until=datetime(2025, 11, 3, 18, tzinfo=UTC),
    states=(ReplayScope.DEAD, ReplayScope.DELIVERED),
    types=("payout_hold.block",),
    keys=(UUID(int=5),),
)


def test_stored_filter_is_the_same_again() -> None:
    WHOLE.check()
    assert filter_stored(WHOLE.stored()) == WHOLE


def test_first_batch_zero_is_stored() -> None:
    given = ReplayFilter(stream="payouts", first_batch=0, last_batch=0)
    assert filter_stored(given.stored()) == given


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ReplayFilter(), "empty filter"),
        (ReplayFilter(first_batch=1), "give the stream"),
        (ReplayFilter(stream="s", first_batch=2, last_batch=1), "after the last"),
        (ReplayFilter(since=datetime(2025, 11, 3)), "offset from UTC"),  # noqa: DTZ001
        (ReplayFilter(since=NOON, until=NOON), "ends before it begins"),
        (ReplayFilter(keys=(UUID(int=1),) * (KEYS_MAX + 1)), "too many"),
    ],
)
def test_senseless_filter_is_refused(given: ReplayFilter, why: str) -> None:
    with pytest.raises(ReplayFilterError, match=why):
        given.check()


NOW = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("2h", NOW - timedelta(hours=2)),
        ("1w", NOW - timedelta(days=7)),
        (" 0s ", NOW),
        ("today", datetime(2026, 11, 2, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-10-30", datetime(2026, 10, 30, tzinfo=UTC)),
        ("2026-11-02T01:00:00+01:00", datetime(2026, 11, 2, tzinfo=UTC)),
        ("999999w", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_time_means_a_moment_by_the_clock(text: str, moment: datetime) -> None:
    assert when(text).at(NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2h30m", "-2h", "1_0h", "٢h", "2026-11-02T12:00:00", "2026-13-01", "1762085700"],
)
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        when(text)


@pytest.mark.parametrize("text", ["2h", "today", "0s"])
def test_exact_time_depends_on_no_clock(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        exact(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_time_is_read_as_it_is_written(moment: datetime) -> None:
    assert exact(moment.isoformat()) == when(moment.isoformat()).at(NOW) == moment


OLD = Key.of(["payout-hold/v1", "m_482"])


def test_key_derives_only_from_the_old_one_and_the_ordinal() -> None:
    keys = [Key.of(parts_of(OLD, ordinal)).digest for ordinal in (1, 2, 3)]
    assert len(set(keys)) == 3
    assert [parts_behind(OLD, key)[-1] for key in keys] == ["1", "2", "3"]
    with pytest.raises(ValueError, match="is not a key of a reissue"):
        parts_behind(OLD, OLD.digest)


def test_number_of_the_batch_fits_the_ledger_and_differs() -> None:
    numbers = {batch_id_of(Key.of(parts_of(OLD, n)).digest) for n in range(1, 100)}
    assert len(numbers) == 99
    assert all(0 <= number < 2**63 for number in numbers)


def test_content_is_the_old_one_under_the_new_key() -> None:
    at = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
    data = {"merchant_id": "é\u202e", "exposure_minor": 2**53 - 1}
    body = Envelope.of("payout_hold.block", at, OLD, data).body(7)
    entry = {
        "subject": "m_482",
        "type": "payout_hold.block",
        "occurred_at": at,
        "priority": 3,
        "traceparent": None,
        "body": body.decode(),
    }
    row = json.loads(entry_text(entry, parts_of(OLD, 1)))
    assert (row["data"], row["key"]) == (data, ["reissue/v1", OLD.text, "1"])
    assert (row["occurred_at"], row["priority"]) == ("2026-11-02T12:15:00Z", 3)
