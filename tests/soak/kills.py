"""The exposure job is killed at random points; afterwards nothing is lost, doubled or other.

Real: `holdfast job run`, Spark, its JVM and Python workers, Postgres, SIGKILL. Compared: every row
that the job wrote, with those of a run that nothing happened to, and with the rules as a naive
reference reads them. Which process dies and when is drawn from a seed (`tests/support/job_kills`);
`make kills` plays one seed, `make soak` draws others. A JVM that outlives its killed driver is a
case of its own. Not part of `make test`, because starting Spark again and again takes long.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.job.job_kills import RUN, Moment, Round, Victim, play
from tests.support.job.job_process import SECONDS, family, freeze, was_answered
from tests.support.job.job_stream import outcome, published, required, stream
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1800)]

SEED = 482
EACH = int(os.environ.get("HOLDFAST_TEST_KILLS_EACH", "5"))
"""Drivers and JVMs that are killed, with twice as many workers: 20 kills, or 8 for 2 of each."""


@pytest.fixture(scope="module")
def played(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Round:
    with (
        copy_of(server_dsn, template_database) as peace,
        copy_of(server_dsn, template_database) as attack,
    ):
        return play(SEED, tmp_path_factory.mktemp("round"), peace, attack, EACH)


def test_processes_of_each_kind_died_at_work(played: Round) -> None:
    assert len(played.done) == 4 * EACH
    interrupted = Counter(each.kill.victim for each in played.done if each.interrupted)
    assert interrupted[Victim.DRIVER] == EACH
    assert interrupted[Victim.JVM] == EACH
    # One that waits for work may die unnoticed, one in the middle of the step may not.
    assert interrupted[Victim.WORKER] >= sum(each.kill.at == Moment.STEP for each in played.done)


def test_random_kills_change_no_row(played: Round) -> None:
    assert played.attacked == played.peaceful


def test_the_ledger_has_each_batch_once(played: Round) -> None:
    ledger = [batch_id for _, batch_id, *_ in played.attacked["batch"]]
    assert ledger == list(range(len(played.stream.files) + 1))


def test_decisions_windows_and_late_events_are_those_of_the_rules(played: Round) -> None:
    decisions, windows, late = played.required
    assert {type_ for _, type_, _ in decisions} == {"payout_hold.block", "payout_hold.release"}
    assert any(exposure == 0 for *_, exposure, _, _ in windows)
    assert {reason for reason, *_ in late} == {"late", "duplicate", "future_dated"}
    assert played.published == (decisions, windows, late)


def test_refused_lines_are_set_aside_once(played: Round) -> None:
    expected = Counter(reason for refused in played.stream.refused for reason in refused)
    assert len(expected) > 1
    assert Counter(reason for _, reason, _ in played.attacked["quarantine"]) == expected


def test_jvm_recording_after_its_driver_was_killed_changes_nothing(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    events = stream(SEED, 6)
    events.put(tmp_path / "events")

    with family(tmp_path, dsn, *RUN, log="1.txt", environment={}) as first:
        eventually(lambda: _written(db) >= 2, SECONDS)
        with _stream_locked(dsn, db):
            jvm = first.jvm()
            assert jvm
            freeze(jvm)
        eventually(lambda: was_answered(jvm, psutil.Process(first.process.pid)))
        first.process.kill()
        first.process.wait()
        # The sink wrote the batch and said so; Spark has not heard it, and another driver starts.
        commit = tmp_path / "checkpoint" / "commits" / str(_written(db) - 1)
        with family(tmp_path, dsn, *RUN, log="2.txt", environment={}) as second:
            eventually(lambda: _epoch(db) == 2, SECONDS)
            with _stream_locked(dsn, db):
                assert not commit.exists()
                jvm.resume()
                eventually(lambda: not first.left(), SECONDS)
                assert commit.exists()
            assert second.process.wait(SECONDS) == 0, second.said

    assert published(dsn) == required(events.expected(tmp_path / "policy.toml"))
    assert [batch_id for _, batch_id, *_ in outcome(dsn)["batch"]] == list(range(7))


@contextmanager
def _stream_locked(dsn: str, db: psycopg.Connection) -> Iterator[None]:
    """Hold the stream's row; entered as soon as the driver waits for it with its next batch."""
    waiting = """
        SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND application_name = 'holdfast sink payouts' AND datname = current_database()"""
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM holdfast.stream FOR UPDATE")
        eventually(lambda: db.execute(waiting).fetchone() == (1,), SECONDS)
        yield


def _written(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM holdfast.batch").fetchone()
    assert row
    return int(row[0])


def _epoch(db: psycopg.Connection) -> int:
    row = db.execute("SELECT coalesce(max(epoch), 0) FROM holdfast.stream").fetchone()
    assert row
    return int(row[0])
