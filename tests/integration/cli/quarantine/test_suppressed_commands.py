"""What operators see of decisions that were not written, and of subjects that are silenced."""

import json
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.subjects.store import Repairs
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.aging import OLD, add_days, age
from tests.support.dispatch.entries import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

OVERTAKEN = decision("m_1", 2, RELEASE, minor=7)
REPEATED = [decision("m_1", 5), decision("m_2", 5)]


def _key(row: dict[str, Any]) -> str:
    return Key.of(row["key"]).text


def _json(dsn: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = holdfast(*arguments, "--json", dsn=dsn)
    return done.returncode, json.loads(done.stdout or "{}")


@pytest.fixture
def written(dsn: str) -> str:
    """Two streams; of the one a decision was overtaken and two repeat one."""
    spark = Driver(dsn, stream="payouts")
    spark.batch(0, decision("m_1", 4), decision("m_2", 4))
    spark.batch(1, OVERTAKEN, *REPEATED)
    spark.sink.close()
    other = Driver(dsn, stream="others")
    other.batch(0, decision("m_1", 1, key=["other"]))
    other.sink.close()
    return dsn


def _now(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def _silence(dsn: str, db: psycopg.Connection, ahead: timedelta = timedelta(days=3)) -> None:
    """Date a release ahead, as a sink did that took any date; then decide twice."""
    spark = Driver(dsn, stream="payouts", future_tolerance=timedelta(days=9))
    spark.batch(0, decision("m_1", 1), decision("m_2", 1))
    spark.batch(1, decision("m_1", 2, RELEASE, occurred_at=_now(db) + ahead))
    spark.batch(2, decision("m_1", 3, BLOCK))
    spark.batch(3, decision("m_1", 4, RELEASE), decision("m_2", 4, RELEASE))
    spark.sink.close()


def test_suppressed_decisions_are_listed_by_page_and_by_what_is_asked_for(written: str) -> None:
    code, told = _json(written, "suppressed", "list")
    assert code == ExitCode.OK
    keys = [row["key"] for row in told["suppressed"]]
    assert sorted(keys) == sorted(_key(row) for row in [OVERTAKEN, *REPEATED])
    assert told["next_before"] is None

    paged, before = [], ()
    for _ in range(3):
        _, page = _json(written, "suppressed", "list", "--limit", "1", *before)
        paged += [row["key"] for row in page["suppressed"]]
        before = ("--before", str(page["next_before"]))
    assert paged == keys
    assert page["next_before"] is None

    asked = {
        ("--cause", "overtaken"): [OVERTAKEN],
        ("--subject", "m_2"): REPEATED[1:],
        ("--subject", "m_1", "--cause", "repeated", "--stream", "payouts"): REPEATED[:1],
        ("--since", "2026-11-02T12:00:00Z", "--cause", "overtaken"): [OVERTAKEN],
    }
    for arguments, rows in asked.items():
        _, told = _json(written, "suppressed", "list", *arguments)
        assert [row["key"] for row in told["suppressed"]] == [_key(row) for row in rows]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list", "--stream", "others"), ExitCode.NOTHING_MATCHED),
        (("list", "--stream", "nobody"), ExitCode.NOTHING_MATCHED),
        (("list", "--subject", "nobody"), ExitCode.NOTHING_MATCHED),
        (("list", "--until", "2026-11-02T12:00:00Z"), ExitCode.NOTHING_MATCHED),
        (("list", "--before", "1.9999999999999.9999999999999.9999999999999"), ExitCode.USAGE),
        (("list", "--before", "x"), ExitCode.USAGE),
        (("show", "hf_" + "0" * 32), ExitCode.NOTHING_MATCHED),
        (("show", _key(decision("m_1", 4))), ExitCode.NOTHING_MATCHED),
        (("show", "x"), ExitCode.USAGE),
    ],
)
def test_what_is_not_there_or_cannot_be_is_said(
    written: str, arguments: tuple[str, ...], code: ExitCode
) -> None:
    assert _json(written, "suppressed", *arguments)[0] == code


def test_a_suppressed_decision_is_shown_with_its_content_and_its_subjects_state(
    written: str,
) -> None:
    code, found = _json(written, "suppressed", "show", _key(OVERTAKEN))
    assert code == ExitCode.OK
    assert (found["subject"], found["cause"], found["type"]) == ("m_1", "overtaken", RELEASE)
    assert found["key_parts"] == OVERTAKEN["key"]
    assert json.loads(found["data"]) == OVERTAKEN["data"]
    assert (found["batch"]["stream"], found["batch"]["batch_id"]) == ("payouts", 1)
    assert (found["state"]["stream"], found["state"]["last_type"]) == ("payouts", BLOCK)


def test_whoever_asks_about_a_suppressed_key_is_told_where_to_look(written: str) -> None:
    key = _key(OVERTAKEN)
    where = f"holdfast suppressed show {key}"
    told = _json(written, "why", key)[1]
    assert (told["verdict"], told["answer"]["command"]) == ("suppressed", where)
    for command in (("entries", "show"), ("trace",)):
        done = holdfast(*command, key, dsn=written)
        assert done.returncode == ExitCode.NOTHING_MATCHED
        said = " ".join(done.stderr.split())
        assert where in said
        assert "(overtaken)" in said
        assert "batch 1 of stream 'payouts'" in said


def test_overtaken_decisions_are_counted_and_need_nobody(written: str) -> None:
    for command in ("status", "overview"):
        _, told = _json(written, command)
        assert told["overtaken_rows"] == 1
        assert "silenced_subjects" not in [need["kind"] for need in told["needs"]]
        said = holdfast(command, dsn=written).stdout
        assert "1 decision overtaken: holdfast suppressed list --cause overtaken" in said


def test_a_silenced_subject_needs_a_person_until_it_is_put_right(
    dsn: str, db: psycopg.Connection
) -> None:
    _silence(dsn, db)
    code, told = _json(dsn, "status")
    assert code == ExitCode.DEGRADED
    [need] = [need for need in told["needs"] if need["kind"] == "silenced_subjects"]
    assert (need["count"], need["command"]) == (1, "holdfast subjects list --silenced")
    _, listed = _json(dsn, "subjects", "list", "--silenced")
    assert [row["name"] for row in listed["subjects"]] == ["m_1"]
    _, shown = _json(dsn, "subjects", "show", "m_1")
    assert [(row["stream"], row["ahead"]) for row in shown["transitions"]] == [("payouts", True)]
    both = holdfast("subjects", "list", "--silenced", "--held", "any", dsn=dsn)
    assert both.returncode == ExitCode.USAGE

    db.execute("SET ROLE holdfast_operator")
    db.execute("UPDATE holdfast.transition SET last_occurred_at = now() WHERE ahead")
    _, told = _json(dsn, "overview")
    assert "silenced_subjects" not in [need["kind"] for need in told["needs"]]
    assert holdfast("subjects", "list", "--silenced", dsn=dsn).returncode == (
        ExitCode.NOTHING_MATCHED
    )


def test_status_tells_of_events_late_by_a_watermark_ahead(dsn: str, db: psycopg.Connection) -> None:
    add = """
        INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type, amount_minor,
            currency, occurred_at, watermark, written_at)
        SELECT 'payouts', reason::holdfast.late_reason, reason || ahead, 'm', 't', 1, 'USD', now(),
            now() - written + ahead, now() - written
        FROM (VALUES ('late', '-30 s'::interval, '1 s'::interval), ('late', '210 s', '1 s'),
            ('late', '210 s', '2 d'), ('future_dated', '210 s', '1 s')
        ) AS given (reason, ahead, written)"""
    db.execute(add)
    code, told = _json(dsn, "status")
    [need] = [need for need in told["needs"] if need["kind"] == "watermark_ahead"]
    assert (code, need["count"]) == (ExitCode.DEGRADED, 1)
    assert need["command"] == "holdfast late list --reason late --stream payouts"
    db.execute("UPDATE holdfast.late_event SET watermark = written_at - interval '1 s'")
    assert "watermark_ahead" not in [need["kind"] for need in _json(dsn, "status")[1]["needs"]]


def test_a_date_within_the_tolerance_silences_nobody(dsn: str, db: psycopg.Connection) -> None:
    _silence(dsn, db, ahead=timedelta(hours=23))
    _, told = _json(dsn, "status")
    assert "silenced_subjects" not in [need["kind"] for need in told["needs"]]


def test_a_look_at_a_silenced_subject_says_what_its_state_would_be_and_what_it_cost(
    dsn: str, db: psycopg.Connection
) -> None:
    _silence(dsn, db)
    reports = Driver(dsn, stream="reports")
    reports.batch(0, decision("m_1", 9, "report.daily"))
    reports.sink.close()
    with Repairs.connect(dsn) as store:
        found = store.states("m_1")
        with pytest.raises(CommandError, match="no subject"):
            store.states("m_9")
    payouts, others = found["states"]
    # Receivers have applied the release: the next block is none of a blocked subject.
    assert (payouts["stream"], payouts["ahead"], payouts["stored_type"]) == (
        "payouts",
        True,
        RELEASE,
    )
    assert payouts["stored_occurred_at"] == decision("m_1", 1)["occurred_at"]
    assert payouts["overtaken_count"] == 2
    lost = [decision("m_1", 3, BLOCK), decision("m_1", 4, RELEASE)]
    assert [row["key"] for row in payouts["overtaken"]] == [_key(row) for row in lost]
    assert (others["ahead"], others["overtaken"], others["overtaken_count"]) == (False, [], 0)
    assert others["stored_occurred_at"] == others["last_occurred_at"]


def test_check_says_when_suppressed_rows_are_missing(written: str, db: psycopg.Connection) -> None:
    assert _json(written, "check", "--since", "1h")[0] == ExitCode.OK
    db.execute("DELETE FROM holdfast.suppressed WHERE cause = 'overtaken'")
    code, told = _json(written, "check", "--since", "1h")
    assert code == ExitCode.FAILED
    assert [violation["rule"] for violation in told["violations"]] == ["batch_suppressed"]


def test_check_misses_no_suppressed_row_of_a_day_that_was_dropped(
    written: str, db: psycopg.Connection
) -> None:
    day = age(db, OLD)
    add_days(db, OLD)
    asked = ("check", "--since", f"{OLD + 5}d")
    code, told = _json(written, *asked)
    assert (code, told["counted"]["batches"]) == (ExitCode.OK, 3)
    db.execute(f"DROP TABLE holdfast.suppressed_{day:%Y%m%d}".encode())
    assert _json(written, *asked)[0] == ExitCode.OK


def test_days_of_suppressed_decisions_are_pruned_as_entries_are(
    written: str, db: psycopg.Connection
) -> None:
    age(db, OLD)
    told = _json(written, "db", "prune", "--older-than", "90d", "--reason", "t")[1]
    outcomes = {day["outcome"] for day in told["days"] if day["table"] == "suppressed"}
    assert outcomes == {"dropped"}
    assert db.execute("SELECT count(*) FROM holdfast.suppressed").fetchone() == (0,)
