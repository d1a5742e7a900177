"""`holdfast stream`: a stream as an operator sees it."""

import json
from typing import Any
from uuid import uuid4

import psycopg

from sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.driver import Driver
from tests.support.entries import RELEASE, decision

ENDPOINT = """
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    VALUES ('payouts', 'https://payouts.example/', '{env:S}') RETURNING id
"""
LANES = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at)
    SELECT p.id, s.id, 0, s.last_sequence, 0, s.last_created_at
    FROM holdfast.endpoint p, holdfast.subject s
"""


def _shown(dsn: str, *arguments: str) -> dict[str, Any]:
    done = holdfast("stream", "show", *arguments, "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def _two_checkpoints(dsn: str, db: psycopg.Connection) -> tuple[Driver, Driver]:
    first, second = Driver(dsn, checkpoint="/checkpoints/a"), Driver(dsn)
    first.batch(0, decision("m_1"), decision("m_2"), decision("m_2") | {"subject": ""})
    first.batch(1, decision("m_1"), decision("m_1", 2, RELEASE))
    db.execute("UPDATE holdfast.stream SET query_id = %s", [second.query_id])
    second.batch(0, decision("m_3"))
    for driver in (first, second):
        driver.sink.close()
    return first, second


def test_stream_is_shown_with_its_checkpoints_and_totals(dsn: str, db: psycopg.Connection) -> None:
    first, second = _two_checkpoints(dsn, db)
    other = Driver(dsn, stream="other")
    other.batch(0, decision("m_1", 3))
    other.sink.close()
    shown = _shown(dsn, "payouts")
    assert (shown["query_id"], shown["run_id"]) == (str(second.query_id), str(second.run_id))
    assert shown["epoch"] == 2
    assert shown["checkpoint"] == "/checkpoints/a"
    checkpoints = [(each["query_id"], each["batches"]) for each in shown["checkpoints"]]
    assert checkpoints == [(str(second.query_id), 1), (str(first.query_id), 2)]
    totals = ("batches", "rows", "entries", "duplicates", "suppressed", "quarantined")
    assert [shown[name] for name in totals] == [3, 6, 4, 1, 0, 1]
    assert (shown["unrouted_batches"], shown["unrouted_entries"]) == (3, 4)
    assert [each["batch_id"] for each in shown["newest_batches"]] == [0]


def test_stream_shows_what_waits_and_what_was_set_aside(dsn: str, db: psycopg.Connection) -> None:
    _two_checkpoints(dsn, db)
    db.execute(ENDPOINT)
    db.execute(LANES)
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    shown = _shown(dsn, "payouts")
    [waiting] = shown["undelivered"]
    assert (waiting["endpoint"], waiting["undelivered"], waiting["dead_letters"]) == (
        "payouts",
        4,
        0,
    )
    assert [(each["reason"], each["open"]) for each in shown["open_quarantine"]] == [
        ("bad_subject", 1)
    ]

    db.execute("UPDATE holdfast.lane SET delivered_sequence = last_sequence")
    db.execute("UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()")
    shown = _shown(dsn, "payouts")
    assert shown["undelivered"] == shown["open_quarantine"] == []
    text = holdfast("stream", "show", "payouts", dsn=dsn).stdout
    assert "6 rows = 4 entries + 1 duplicates + 0 suppressed + 1 quarantined" in text
    assert "Undelivered: none" in text


def test_stream_that_has_written_nothing_is_shown(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('quiet')")
    shown = _shown(dsn, "quiet")
    assert (shown["batches"], shown["entries"], shown["newest_batches"]) == (0, 0, [])
    assert holdfast("stream", "show", "quiet", dsn=dsn).returncode == ExitCode.OK


def test_unknown_stream_matches_nothing(dsn: str) -> None:
    done = holdfast("stream", "show", "nobody", dsn=dsn)
    assert done.returncode == ExitCode.NOTHING_MATCHED
    assert "holdfast stream list" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_reason_of_an_adoption_is_bounded(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts')")
    long = ("--query-id", str(uuid4()), "--reason", "x" * 2001)
    done = holdfast("stream", "adopt", "payouts", *long, dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)
