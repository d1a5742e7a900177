"""Endpoints that began by the clock begin by batch: nothing old comes, nothing new is lost."""

from collections.abc import Sequence

import psycopg
import pytest

from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink.contract.exits import CommandError
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions

BEFORE = "0023"
START = "now() - interval '3 hours'"
STREAM = "INSERT INTO holdfast.stream (name) VALUES ('test')"
BATCH = f"""
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at,
        routed_at)
    VALUES ('test', gen_random_uuid(), 0, gen_random_uuid(), 1, 0, 0, 0, 0, 0, 0,
        decode(repeat('00', 32), 'hex'), {START} + %s * interval '1 minute', now())
"""
ENDPOINT = f"""
    INSERT INTO holdfast.endpoint (name, url, secret_refs, starts_at, created_at) VALUES
        ('now', 'https://a.example/', '{{env:S}}', {START}, {START}),
        ('all', 'https://b.example/', '{{env:S}}', NULL, {START})
"""
MARKS = "SELECT name, starts_after, starts_late::text FROM holdfast.endpoint ORDER BY id"


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ([], 0),
        ([-2, -1], 2),
        ([-2, -1, 1, 2], 2),
        # Set back after a batch of its own: what comes then is its own, too.
        ([-2, 1, -30, -20, 2], 1),
        # Set back right after it was added, or right before: nothing may be lost.
        ([-2, -1, -30, -20, 2], 2),
        # Long before; and not by what is only out of order.
        ([-100, -130, -20, -1, 1], 4),
        ([-2, -1, -1.5, -0.5, 1], 4),
    ],
)
def test_endpoint_of_before_begins_at_the_first_batch_that_may_be_its_own(
    dsn: str, db: psycopg.Connection, written: Sequence[float], first: int
) -> None:
    downgrade(dsn, BEFORE)
    db.execute(STREAM)
    for minutes in written:
        db.execute(BATCH.encode(), [minutes])
    db.execute(ENDPOINT)
    upgrade(dsn)
    assert db.execute(MARKS).fetchall() == [("now", first, "{}"), ("all", None, "{}")]


@pytest.mark.parametrize("moved", ["starts_at", "created_at"])
def test_endpoint_whose_start_is_in_the_future_had_its_clock_set_back(
    dsn: str, db: psycopg.Connection, moved: str
) -> None:
    downgrade(dsn, BEFORE)
    db.execute(STREAM)
    for minutes in (10, 120) if moved == "created_at" else (-10,):
        db.execute(BATCH.encode(), [minutes])
    db.execute(ENDPOINT)
    for minutes in (15, 20):
        db.execute(BATCH.encode(), [minutes])
    db.execute("UPDATE holdfast.endpoint SET starts_at = now() + interval '1 hour' WHERE id = 1")
    if moved == "created_at":
        db.execute("UPDATE holdfast.endpoint SET created_at = starts_at WHERE id = 1")
    upgrade(dsn)
    expected = 2 if moved == "created_at" else 1
    assert db.execute(MARKS).fetchone() == ("now", expected, "{}")


def test_check_finds_what_was_lost_before_the_upgrade(dsn: str, db: psycopg.Connection) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("old")
        add_endpoint(db, "http://127.0.0.1:1/", starts_at="2999-01-01T00:00:00Z")
        decisions.write("lost")
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    downgrade(dsn, BEFORE)
    upgrade(dsn)
    done = holdfast("check", "--json", "--endpoint", "payouts", dsn=dsn)
    assert '"subject": "lost"' in done.stdout
    assert '"subject": "old"' not in done.stdout


def test_version_before_adds_an_endpoint_that_begins_now(db: psycopg.Connection) -> None:
    """It names `starts_at` alone; numbers that are not there yet may still be on their way."""
    db.execute(STREAM)
    for minutes in (0, 1, 2, 3, 4):
        db.execute(BATCH.encode(), [minutes])
    db.execute("DELETE FROM holdfast.batch WHERE batch_no IN (2, 3)")
    db.execute(ENDPOINT)
    assert db.execute(MARKS).fetchall() == [("now", 5, "{[2,4)}"), ("all", None, "{}")]
    db.execute("UPDATE holdfast.endpoint SET starts_at = now() + interval '1 year' WHERE id = 1")
    assert db.execute(MARKS).fetchone() == ("now", 5, "{[2,4)}")
    db.execute("UPDATE holdfast.endpoint SET starts_at = NULL WHERE id = 1")
    assert db.execute(MARKS).fetchone() == ("now", None, "{}")


@pytest.mark.parametrize("routed", [False, True])
def test_downgrade_is_refused_while_a_late_batch_would_be_for_nobody(
    dsn: str, db: psycopg.Connection, routed: bool
) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("late")
        decisions.write("early")
        add_endpoint(db, "http://127.0.0.1:1/", starts_at="2999-01-01T00:00:00Z")
    # The endpoint was added after the second batch was committed and before the first one was.
    db.execute("UPDATE holdfast.endpoint SET starts_at = now(), starts_late = '{[1,2)}'")
    db.execute("UPDATE holdfast.batch SET routed_at = now() WHERE batch_no = 2 OR %s", [routed])
    before = db.execute(MARKS).fetchall()
    if routed:
        downgrade(dsn, "0026")
        return
    with pytest.raises(CommandError, match=r"1 batch.*payouts.*No table was changed"):
        downgrade(dsn, "0026")
    assert db.execute(MARKS).fetchall() == before == [("payouts", 2, "{[1,2)}")]
