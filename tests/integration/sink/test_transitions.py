"""Transition state is kept per stream and subject; what it suppresses is kept as rows.

Clocks of the future are data here: no test waits for one.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.sink import ReplayDiverged, Replayed, Written
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import REISSUED, REQUEUED, Overtakes
from holdfast.sink.requeue import requeue, stream_of
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.job_outcome import contents, sequences
from tests.support.world import World

DAILY = "report.daily"
FAR = datetime(9999, 12, 31, tzinfo=UTC)
LONG = "p" * 63
"""`LONG.requeue` would be too long for a name, and is shortened."""

STATE = "SELECT last_type, last_occurred_at FROM holdfast.transition WHERE stream = %s"


@pytest.fixture(params=[False, True], ids=["driver", "staged"])
def payouts(request: pytest.FixtureRequest, dsn: str) -> Iterator[Driver]:
    """A stream that writes on the one path or on the other."""
    driver = Driver(dsn, stream="payouts", staged=request.param)
    yield driver
    driver.sink.close()


def _fate(outcome: Written | Replayed) -> tuple[int, int, int]:
    counts = outcome.counts
    return counts.entries, counts.suppressed, counts.quarantined


def _by_hand(dsn: str, stream: str, number: int, row: dict[str, Any], **other: Any) -> bool:
    """Write one entry as an operator's command does; returns whether it is written."""
    text = json.dumps(row, default=lambda value: value.isoformat())
    [told] = requeue(dsn, stream, {number: text}, **{"suppress_repeats": True, **other})
    return told.written


def test_later_entry_of_another_stream_overtakes_nothing(world: World, payouts: Driver) -> None:
    world.driver(stream="reports").batch(0, decision("m_1", 2, DAILY))
    assert _fate(payouts.batch(0, decision("m_1", 1, BLOCK))) == (1, 0, 0)
    rows = world.db.execute("SELECT type FROM holdfast.entry ORDER BY sequence").fetchall()
    assert rows == [(DAILY,), (BLOCK,)]


def test_block_stays_a_repeat_beside_another_stream(world: World, payouts: Driver) -> None:
    payouts.batch(0, decision("m_1", 1, BLOCK))
    world.driver(stream="reports").batch(0, decision("m_1", 2, DAILY))
    assert _fate(payouts.batch(1, decision("m_1", 3, BLOCK))) == (0, 1, 0)
    assert _fate(payouts.batch(2, decision("m_1", 4, RELEASE))) == (1, 0, 0)


@pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])
@pytest.mark.parametrize("stream", ["payouts", LONG], ids=["short", "shortened"])
def test_entry_by_hand_moves_its_streams_state(world: World, stream: str, suffix: str) -> None:
    job = world.driver(stream=stream)
    job.batch(0, decision("m_1", 1, RELEASE))
    world.driver(stream="reports").batch(0, decision("m_1", 5, DAILY))
    assert _by_hand(world.dsn, stream, 1, decision("m_1", 2, BLOCK), suffix=suffix)
    assert _fate(job.batch(1, decision("m_1", 3, BLOCK))) == (0, 1, 0)
    job.batch(2, decision("m_1", 4, RELEASE))
    assert not _by_hand(world.dsn, stream, 2, decision("m_1", 6, RELEASE), suffix=suffix)
    assert not _by_hand(
        world.dsn, stream, 3, decision("m_1", 3, BLOCK) | {"key": ["k"]}, suffix=suffix
    )
    rows = world.db.execute("SELECT DISTINCT stream FROM holdfast.transition ORDER BY 1").fetchall()
    assert rows == [(stream,), ("reports",)]


def test_reissue_of_a_requeued_entry_moves_the_state_of_the_job(world: World) -> None:
    job = world.driver(stream="payouts")
    job.batch(0, decision("m_1", 1, RELEASE))
    assert _by_hand(world.dsn, "payouts", 1, decision("m_1", 2, BLOCK))
    again = decision("m_1", 3, RELEASE)
    assert _by_hand(world.dsn, stream_of("payouts"), 2, again, suffix=REISSUED)
    assert _fate(job.batch(1, decision("m_1", 4, RELEASE))) == (0, 1, 0)


def test_suppressed_decisions_are_kept_whole(world: World, payouts: Driver) -> None:
    payouts.batch(0, decision("m_1", 4))
    overtaken, repeated = decision("m_1", 2, RELEASE, minor=7), decision("m_1", 5, minor=8)
    payouts.batch(1, overtaken, repeated)
    rows = world.db.execute("""
        SELECT name, key, type, occurred_at, cause::text, key_parts, data,
            suppressed_at = written_at, suppressed_count
        FROM holdfast.suppressed
        JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON id = subject_id ORDER BY occurred_at""").fetchall()
    for (*plain, parts, data, of_batch, count), cause, row in zip(
        rows, ("overtaken", "repeated"), (overtaken, repeated), strict=True
    ):
        of_row = [row["subject"], Key.of(row["key"]).digest, row["type"], row["occurred_at"], cause]
        assert plain == of_row
        assert (json.loads(parts), json.loads(data)) == (row["key"], row["data"])
        assert (of_batch, count) == (True, 2)


def test_a_batch_that_is_rolled_back_keeps_nothing_of_what_it_suppressed(world: World) -> None:
    class Broken(Exception):
        pass

    def fail(*_: object) -> None:
        raise Broken

    first = world.driver()
    first.batch(0, decision("m_1", 1))
    second = world.driver(query_id=first.query_id, also=fail)
    with pytest.raises(Broken):
        second.batch(1, decision("m_1", 2))
    assert contents(world.db)["suppressed"] == []


@pytest.mark.guarantee(8)
def test_row_of_the_year_9999_silences_no_subject(world: World, payouts: Driver) -> None:
    far = decision("m_1", 1, RELEASE, occurred_at=FAR)
    assert _fate(payouts.batch(0, far, decision("m_9", occurred_at=FAR))) == (0, 0, 2)
    assert _fate(payouts.batch(1, decision("m_1", 2, BLOCK))) == (1, 0, 0)
    left = contents(world.db)
    [(_, reason, row), _] = left["quarantine"]
    assert reason == "future_dated"
    assert json.loads(row)["key"] == far["key"]
    # Neither its key nor a subject of its own is taken, so that it can be put back corrected.
    assert [name for name, *_ in left["subject"]] == ["m_1"]
    assert [key for key, *_ in left["entry_key"]] == [Key.of(decision("m_1", 2)["key"]).digest]


def test_tolerance_is_an_option_and_is_measured_by_the_databases_clock(world: World) -> None:
    now = world.db.execute("SELECT now()").fetchone()[0]  # type: ignore[index]
    near, soon = (decision("m_1", n, occurred_at=now + timedelta(hours=n)) for n in (23, 25))
    assert _fate(world.driver(stream="default").batch(0, near, soon)) == (1, 0, 1)
    patient = world.driver(stream="patient", future_tolerance=timedelta(days=2))
    assert _fate(patient.batch(0, decision("m_2", occurred_at=soon["occurred_at"]))) == (1, 0, 0)
    for wrong in (timedelta(days=-1), timedelta(days=36_501), None, "1", 86_400):
        with pytest.raises(ValueError, match="future_tolerance"):
            world.driver(future_tolerance=wrong)


@pytest.mark.guarantee(8)
@pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])
def test_replay_is_the_same_batch_at_any_time(world: World, staged: bool) -> None:
    rows = [decision("m_1", 1), decision("m_1", 2, RELEASE, occurred_at=FAR)]
    first = world.driver(staged=staged)
    assert _fate(first.batch(0, *rows)) == (1, 0, 1)
    before = contents(world.db)
    # What a later clock would say: the row is not beyond the limit any more.
    later = timedelta(days=36_500)
    second = world.driver(query_id=first.query_id, staged=staged, future_tolerance=later)
    outcome = second.batch(0, *rows)
    assert isinstance(outcome, Replayed)
    assert _fate(outcome) == (1, 0, 1)
    assert contents(world.db) == before


def test_divergence_excludes_rows_set_aside(payouts: Driver) -> None:
    far = decision("m_1", 2, RELEASE, occurred_at=FAR)
    payouts.batch(0, decision("m_1", 1), far)
    with pytest.raises(ReplayDiverged) as raised:
        payouts.batch(0, far, decision("m_2", 1))
    divergence = raised.value.divergence
    assert divergence.only_in_replay.first == (Key.of(decision("m_2", 1)["key"]).digest,)
    assert (divergence.only_in_ledger.count, divergence.quarantined_now) == (1, 1)


def test_row_put_back_with_its_future_date_stays_where_it_is(world: World) -> None:
    world.driver(stream="payouts").batch(0, decision("m_1", 1, occurred_at=FAR))
    before = contents(world.db)
    assert not _by_hand(world.dsn, "payouts", 1, decision("m_1", 1, occurred_at=FAR))
    assert not _by_hand(
        world.dsn, "payouts", 1, decision("m_1", 1, occurred_at=FAR), suppress_repeats=False
    )
    assert contents(world.db) == before
    assert _by_hand(world.dsn, "payouts", 1, decision("m_1", 1))


@pytest.mark.guarantee(11)
def test_older_entry_is_written_by_hand_only_as_approved(world: World, payouts: Driver) -> None:
    newer, older = decision("m_1", 4), decision("m_1", 3, RELEASE)
    payouts.batch(0, newer, decision("m_1", 5, RELEASE))
    world.driver(stream="second").batch(0, decision("m_1", 6))
    world.driver(stream="reports").batch(0, decision("m_1", 7, DAILY))
    newest = decision("m_1", 6)["occurred_at"]
    before = contents(world.db)
    values: dict[str, Any] = {"suppress_repeats": False}
    assert not _by_hand(world.dsn, "payouts", 1, older, **values)
    for wrong in (Overtakes(3, newest), Overtakes(4, newer["occurred_at"])):
        assert not _by_hand(world.dsn, "payouts", 1, older, overtakes=wrong, **values)
    assert contents(world.db) == before
    assert _by_hand(world.dsn, "payouts", 1, older, overtakes=Overtakes(4, newest), **values)
    assert _by_hand(world.dsn, "payouts", 1, older, **values), "it is written before"
    assert sequences(world.db, "m_1") == [1, 2, 3, 4, 5]


def test_time_of_a_stream_that_wants_repeats_does_not_go_back(world: World) -> None:
    spark = world.driver(stream="payouts", suppress_repeats=False)
    spark.batch(0, decision("m_1", 4))
    spark.batch(1, decision("m_1", 2, RELEASE))
    newest = (RELEASE, decision("m_1", 4)["occurred_at"])
    assert world.db.execute(STATE, ["payouts"]).fetchall() == [newest]
