"""`holdfast stream`, and events that were not applied."""

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.sink import ReplayDiverged
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import LateReason
from holdfast.sink.requeue import requeue
from tests.support.command import holdfast
from tests.support.dispatch.sender import RELEASE, decision
from tests.support.job.driver import Driver

ENDPOINT = """
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    VALUES ('payouts', 'https://payouts.example/', '{env:S}') RETURNING id
"""
HAND = "SELECT query_id, acts_for FROM holdfast.stream WHERE name = 'payouts.requeue'"
LANES = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at, due_at)
    SELECT p.id, s.id, 0, s.last_sequence, 0, s.last_created_at, now()
    FROM holdfast.endpoint p, holdfast.subject s
"""


def _shown(dsn: str, *arguments: str) -> dict[str, Any]:
    return holdfast("stream", "show", *arguments, "--json", dsn=dsn, code=ExitCode.OK).json


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
    text = holdfast("stream", "show", "payouts", dsn=dsn).stdout
    assert "3 batches with 4 entries to route" in text
    assert "Undelivered: 4 entries to route; none of the routed ones" in text


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

    db.execute("UPDATE holdfast.lane SET delivered_sequence = last_sequence, due_at = NULL")
    db.execute("UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()")
    shown = _shown(dsn, "payouts")
    assert shown["undelivered"] == shown["open_quarantine"] == []
    text = holdfast("stream", "show", "payouts", dsn=dsn).stdout
    assert "6 rows = 4 entries + 1 duplicate + 0 suppressed + 1 quarantined; 0 duplicates" in text
    assert "Undelivered: none" in text


def test_stream_that_has_written_nothing_is_shown(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('quiet')")
    shown = _shown(dsn, "quiet")
    assert (shown["batches"], shown["entries"], shown["newest_batches"]) == (0, 0, [])
    assert holdfast("stream", "show", "quiet", dsn=dsn).returncode == ExitCode.OK


def test_unknown_stream_matches_nothing(dsn: str) -> None:
    done = holdfast("stream", "show", "nobody", dsn=dsn, code=ExitCode.NOTHING_MATCHED)
    assert "no stream is called 'nobody'; there is none yet" in done.stderr
    assert "holdfast stream list" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_misspelt_stream_lists_the_existing_ones(dsn: str, db: psycopg.Connection) -> None:
    for n in range(10):
        db.execute("INSERT INTO holdfast.stream (name) VALUES (%s)", [f"s{n}"])
    few = "no stream is called 'payout'; there are s0, s1, s2, s3, s4, s5, s6, s7, s8, s9"
    adopting = ("stream", "adopt", "payout", "--query-id", str(uuid4()), "--reason", "x")
    for arguments in (
        ("stream", "show", "payout"),
        ("batch", "list", "payout"),
        ("quarantine", "list", "--stream", "payout"),
        ("quarantine", "export", "--stream", "payout"),
        adopting,
    ):
        done = holdfast(*arguments, dsn=dsn, code=ExitCode.NOTHING_MATCHED)
        assert few in done.stderr
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('s10')")
    assert "there are 11 others" in holdfast("stream", "show", "payout", dsn=dsn).stderr


def test_diverged_replay_is_shown_with_the_number_that_batch_diff_takes(dsn: str) -> None:
    spark = Driver(dsn)
    spark.batch(0, decision("m_1"))
    for subject in ("m_2", "m_3"):
        with pytest.raises(ReplayDiverged):
            spark.batch(0, decision(subject))
    spark.sink.close()
    newest, older = _shown(dsn, "payouts")["divergences"]
    assert newest["id"] > older["id"]
    text = holdfast("stream", "show", "payouts", dsn=dsn).stdout
    [command] = [line for line in text.splitlines() if "holdfast batch diff" in line]
    done = holdfast(*command.partition("holdfast ")[2].split(), "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["divergence"]["id"] == newest["id"]


def test_reason_of_an_adoption_is_bounded(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts')")
    long = ("--query-id", str(uuid4()), "--reason", "x" * 2001)
    holdfast("stream", "adopt", "payouts", *long, dsn=dsn, code=ExitCode.USAGE)
    assert db.execute("SELECT count(*) FROM holdfast.operator_action").fetchone() == (0,)


def test_no_checkpoint_is_adopted_for_hand_written(dsn: str, db: psycopg.Connection) -> None:
    job = Driver(dsn)
    job.batch(0, decision("m_1"))
    job.sink.close()
    text = json.dumps(decision("m_1", 2, RELEASE), default=lambda value: value.isoformat())
    assert [reply.written for reply in requeue(dsn, "payouts", {1: text}, suppress_repeats=True)]
    [before] = db.execute(HAND).fetchall()
    adopting = ("--query-id", str(uuid4()), "--force", "--reason", "x")
    done = holdfast("stream", "adopt", "payouts.requeue", *adopting, dsn=dsn, code=ExitCode.FAILED)
    assert "Nothing was changed" in done.stderr
    assert db.execute(HAND).fetchall() == [before]
    same = ("--query-id", str(before[0]), "--reason", "x", "--json")
    done = holdfast("stream", "adopt", "payouts.requeue", *same, dsn=dsn)
    assert (done.returncode, done.json["changed"]) == (ExitCode.OK, False)


@pytest.fixture
def late(dsn: str, db: psycopg.Connection) -> str:
    """A database with an event of each reason, of two streams and two merchants."""
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts'), ('cards')")
    for number, reason in enumerate(LateReason):
        db.execute(
            "INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type,"
            " amount_minor, currency, occurred_at, watermark, written_at) VALUES"
            " (%s, %s, %s, %s, 'payout_submitted', -1800000, 'USD', '2026-11-02 12:14:59.5Z',"
            " '2026-11-02 12:17:30Z', '2026-11-02 13:00Z'::timestamptz + %s * interval '1 hour')",
            [("payouts", "cards")[number % 2], reason, f"e{number}", f"m_{number // 2}", number],
        )
    return dsn


def _listed(dsn: str, *words: str) -> dict[str, Any]:
    return holdfast("late-event", "list", *words, "--json", dsn=dsn, code=ExitCode.OK).json


@pytest.mark.rest
def test_events_not_applied_have_a_reason_and_a_watermark(late: str) -> None:
    rows = _listed(late)["late_events"]
    assert [row["event_id"] for row in rows] == ["e3", "e2", "e1", "e0"]
    assert rows[-1] == {
        "id": rows[-1]["id"],
        "stream": "payouts",
        "reason": "late",
        "event_id": "e0",
        "merchant_id": "m_0",
        "type": "payout_submitted",
        "amount_minor": -1800000,
        "currency": "USD",
        "occurred_at": "2026-11-02T12:14:59.500000Z",
        "watermark": "2026-11-02T12:17:30Z",
        "written_at": "2026-11-02T13:00:00Z",
    }
    done = holdfast("late-event", "list", "--merchant", "m_0", dsn=late)
    assert (done.returncode, "e0" in done.stdout, "e2" in done.stdout) == (ExitCode.OK, True, False)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--stream", "cards"), ["e3", "e1"]),
        (("--merchant", "m_1"), ["e3", "e2"]),
        (("--reason", "settled"), ["e3"]),
        (("--since", "2026-11-02T15:00:00Z"), ["e3", "e2"]),
        (("--stream", "payouts", "--merchant", "m_0"), ["e0"]),
    ],
)
def test_filters_choose(late: str, words: tuple[str, ...], expected: list[str]) -> None:
    assert [row["event_id"] for row in _listed(late, *words)["late_events"]] == expected


@pytest.mark.rest
def test_pages_follow_each_other(late: str) -> None:
    seen: list[str] = []
    before: tuple[str, ...] = ()
    for _ in range(3):
        done = holdfast("late-event", "list", "--limit", "2", *before, "--json", dsn=late)
        page = json.loads(done.stdout)
        seen += [row["event_id"] for row in page["late_events"]]
        if page["next_before"] is None:
            break
        before = ("--before", str(page["next_before"]))
    assert seen == ["e3", "e2", "e1", "e0"]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--merchant", "m_9"), ExitCode.NOTHING_MATCHED),
        (("--stream", "unknown"), ExitCode.NOTHING_MATCHED),
        (("--since", "tomorrow"), ExitCode.USAGE),
    ],
)
def test_no_match_exits_3_in_one_line(late: str, words: tuple[str, ...], code: ExitCode) -> None:
    done = holdfast("late-event", "list", *words, dsn=late)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.strip().splitlines()) == 1
