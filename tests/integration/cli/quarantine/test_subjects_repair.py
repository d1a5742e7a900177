"""`holdfast subject repair`, and suppressed decisions: seen, and put right by two people."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.subjects.store import Repairs
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.delivery import OLD, add_days, age
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.job_stream import sequences
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


WHY = ("--reason", "dated wrongly")
STATE = "SELECT stream, last_type, last_occurred_at FROM holdfast.transition ORDER BY 1"
AUDIT = """
    SELECT detail FROM holdfast.operator_action WHERE action = 'subjects.repair' ORDER BY id
"""
LOCKED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
LATER = decision("m_1", 5, BLOCK)


class Silenced:
    """Subject m_1, whose release was dated ahead; then two decisions were overtaken."""

    def __init__(self, dsn: str, db: psycopg.Connection) -> None:
        self.dsn, self.db = dsn, db
        self.drivers: list[Driver] = []
        [now] = db.execute("SELECT clock_timestamp()").fetchall()[0]
        self.ahead: datetime = now + timedelta(days=3)
        self.spark = self.driver()
        self.spark.batch(0, decision("m_1", 1))
        self.spark.batch(1, decision("m_1", 2, RELEASE, occurred_at=self.ahead))
        self.spark.batch(2, decision("m_1", 3, BLOCK), decision("m_1", 4, RELEASE))

    def driver(self, **settings: Any) -> Driver:
        self.drivers.append(Driver(self.dsn, future_tolerance=timedelta(days=9), **settings))
        return self.drivers[-1]

    def ask(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        done = holdfast("subject", "repair", "m_1", *arguments, *WHY, "--json", dsn=self.dsn)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def proposed(self, *arguments: str) -> str:
        code, reply, error = self.ask("--stream", "payouts", *arguments)
        assert code == ExitCode.DEGRADED, error
        return str(reply["proposal"])

    def approved(self, *arguments: str) -> str:
        id_ = self.proposed(*arguments)
        with acting_as("second"):
            done = holdfast("proposal", "approve", id_[:8], *WHY, dsn=self.dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        return id_

    def states(self) -> list[tuple[Any, ...]]:
        return self.db.execute(STATE).fetchall()


@pytest.fixture
def silenced(dsn: str, db: psycopg.Connection) -> Iterator[Silenced]:
    desk = Silenced(dsn, db)
    yield desk
    for spark in desk.drivers:
        spark.sink.close()


def test_silenced_subject_is_repaired_by_two_people(silenced: Silenced) -> None:
    before = silenced.states()
    code, reply, error = silenced.ask("--stream", "payouts")
    assert code == ExitCode.DEGRADED, error
    becomes = {"last_type": RELEASE, "last_occurred_at": "2026-11-02T12:15:00Z"}
    assert (reply["after"], reply["state"]["overtaken_count"]) == (becomes, 2)
    id_ = reply["proposal"]
    assert silenced.proposed() == id_
    code, _, error = silenced.ask("--proposal", id_)
    assert (code, "second person" in error) == (ExitCode.FAILED, True)
    result = holdfast("proposal", "approve", id_, *WHY, dsn=silenced.dsn)
    assert (result.returncode, "that is you" in result.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        approved = holdfast("proposal", "approve", id_, *WHY, dsn=silenced.dsn)
    assert f"holdfast subject repair --proposal {id_[:8]} --reason TEXT m_1" in approved.stdout
    assert silenced.states() == before

    code, done, error = silenced.ask("--proposal", id_)
    assert (code, done["after"]) == (ExitCode.OK, becomes), error
    at = decision("m_1", 1)["occurred_at"]
    assert silenced.states() == [("payouts", RELEASE, at)]
    [[detail]] = silenced.db.execute(AUDIT).fetchall()
    assert (detail["proposal"], detail["approved_by"]) == (id_, "second")
    assert (detail["after"], detail["before"]["last_occurred_at"]) == (
        becomes,
        rfc3339(silenced.ahead),
    )
    again = silenced.ask("--proposal", id_)
    assert (again[0], len(silenced.db.execute(AUDIT).fetchall())) == (ExitCode.FAILED, 1)
    silenced.spark.batch(3, LATER)
    assert sequences(silenced.db, "m_1") == [1, 2, 3]
    assert silenced.ask("--stream", "payouts")[0] == ExitCode.NOTHING_MATCHED


def test_other_subjects_and_streams_keep_states(world: World, silenced: Silenced) -> None:
    reports = Driver(world.dsn, stream="reports")
    reports.batch(0, decision("m_1", 9, "report.daily"), decision("m_2", 9, "report.daily"))
    reports.sink.close()
    others = silenced.states()[1:]
    assert silenced.ask("--proposal", silenced.approved())[0] == ExitCode.OK
    assert silenced.states()[1:] == others
    for stream in ("reports", "nobody"):
        assert silenced.ask("--stream", stream)[0] == ExitCode.NOTHING_MATCHED


def test_proposal_of_one_subject_repairs_no_other(silenced: Silenced) -> None:
    id_, before = silenced.approved(), silenced.states()
    silenced.spark.batch(3, decision("m_2", 1))
    command = ("subject", "repair", "m_2", "--proposal", id_, *WHY)
    assert holdfast(*command, dsn=silenced.dsn).returncode == ExitCode.FAILED
    assert silenced.db.execute(AUDIT).fetchall() == []
    assert before[0] in silenced.states()


@pytest.mark.parametrize("nothing", [True, False], ids=["nothing", "a state"])
def test_operator_says_state_of_nothing_stored(silenced: Silenced, nothing: bool) -> None:
    explicit = ("--to-type", RELEASE, "--to-time", "2026-11-02T12:45:00Z")
    assert silenced.ask("--stream", "payouts", *explicit)[0] == ExitCode.USAGE
    assert silenced.ask("--stream", "payouts", "--to-nothing")[0] == ExitCode.USAGE
    silenced.db.execute("DELETE FROM holdfast.entry")
    code, _, error = silenced.ask("--stream", "payouts")
    assert (code, "--to-nothing" in error) == (ExitCode.FAILED, True)
    for wrong in (
        (*explicit, "--to-nothing"),
        explicit[:2],
        explicit[2:],
        (*explicit[:3], rfc3339(silenced.ahead)),
        ("--to-type", "a b", *explicit[2:]),
    ):
        assert silenced.ask("--stream", "payouts", *wrong)[0] == ExitCode.USAGE, wrong
    id_ = silenced.approved(*(("--to-nothing",) if nothing else explicit))
    assert silenced.ask("--proposal", id_)[0] == ExitCode.OK
    at = datetime.fromisoformat(explicit[3])
    assert silenced.states() == ([] if nothing else [("payouts", RELEASE, at)])
    silenced.spark.batch(3, LATER)
    assert [row[1] for row in silenced.states()] == [BLOCK]


def test_state_changed_after_the_proposal_is_not_repaired(silenced: Silenced) -> None:
    id_ = silenced.approved()
    further = silenced.ahead + timedelta(days=1)
    silenced.spark.batch(3, decision("m_1", 6, BLOCK, occurred_at=further))
    code, _, error = silenced.ask("--proposal", id_)
    assert (code, "propose again" in " ".join(error.split())) == (ExitCode.FAILED, True)
    assert silenced.states() == [("payouts", BLOCK, further)]
    assert silenced.db.execute(AUDIT).fetchall() == []
    assert silenced.proposed() != id_


def test_repair_waits_for_batch_and_is_refused_by_its_rows(silenced: Silenced) -> None:
    id_ = silenced.approved()
    further = silenced.ahead + timedelta(days=1)
    inside, go_on = Event(), Event()

    def pause(*_: object) -> None:
        inside.set()
        assert go_on.wait(30)

    spark = silenced.driver(query_id=silenced.spark.query_id, also=pause)
    row = decision("m_1", 6, BLOCK, occurred_at=further)
    with ThreadPoolExecutor(2) as pool:
        try:
            written = pool.submit(spark.batch, 3, row)
            assert inside.wait(30)
            repaired = pool.submit(_apply, silenced.dsn, id_)
            eventually(_one_waits(silenced.db))
        finally:
            go_on.set()
        written.result(60)
        assert repaired.result(60) == ExitCode.FAILED
    assert silenced.states() == [("payouts", BLOCK, further)]


def test_batch_waits_for_repair_and_is_judged_by_its_state(silenced: Silenced) -> None:
    id_ = silenced.approved()
    with ThreadPoolExecutor(1) as pool, Repairs.connect(silenced.dsn) as store:
        with store._transaction():
            store.apply_repair("m_1", store.find_proposal(id_), "in time")
            written = pool.submit(silenced.spark.batch, 3, LATER)
            eventually(_one_waits(silenced.db))
        written.result(60)
    assert sequences(silenced.db, "m_1") == [1, 2, 3]
    assert silenced.states() == [("payouts", BLOCK, LATER["occurred_at"])]


def test_two_who_apply_one_repair_at_once_do_it_once(silenced: Silenced) -> None:
    id_ = silenced.approved()
    with ThreadPoolExecutor(2) as pool:
        codes = sorted(pool.map(lambda _: _apply(silenced.dsn, id_), range(2)))
    assert codes == [ExitCode.OK, ExitCode.FAILED]
    assert len(silenced.db.execute(AUDIT).fetchall()) == 1


def test_proposal_is_applied_by_one_of_two_at_once(silenced: Silenced) -> None:
    """Whatever it changes, and whatever else they lock for that."""
    id_ = UUID(silenced.approved())

    def apply() -> None:
        with Repairs.connect(silenced.dsn) as second, second.applying(id_, verb, target):
            pytest.fail("the first one applies it")

    with Repairs.connect(silenced.dsn) as first, ThreadPoolExecutor() as threads:
        verb, target = (first.proposal(id_)[name] for name in ("verb", "target"))
        with first.applying(id_, verb, target):
            other = threads.submit(apply)
            eventually(lambda: silenced.db.execute(LOCKED).fetchone() == (1,))
        with raises_code("proposal_not_open"):
            other.result()


def test_renamed_stream_is_not_repaired_under_its_old_name(
    silenced: Silenced,
) -> None:
    """It would change no row, and be recorded as done."""
    id_ = UUID(silenced.approved())
    rename = "UPDATE holdfast.transition SET stream = 'holds' WHERE stream = 'payouts'"
    with (
        psycopg.connect(silenced.dsn) as renaming,
        Repairs.connect(silenced.dsn) as store,
        ThreadPoolExecutor() as threads,
    ):
        renaming.execute(rename)
        applied = threads.submit(store.apply_repair, "m_1", id_, "test")
        eventually(lambda: silenced.db.execute(LOCKED).fetchone() == (1,))
        renaming.commit()
        with raises_code("proposal_outdated"):
            applied.result(60)
    assert silenced.db.execute(AUDIT).fetchall() == []


def test_what_was_changed_in_the_proposal_is_not_done(silenced: Silenced) -> None:
    id_, before = silenced.approved(), silenced.states()
    silenced.db.execute("""
        UPDATE holdfast.proposal SET detail = jsonb_set(detail, '{after,last_type}', '"x"')
    """)
    assert silenced.ask("--proposal", id_)[0] == ExitCode.FAILED
    assert silenced.states() == before


def test_open_proposals_need_a_person_until_they_are_applied(silenced: Silenced) -> None:
    def needs() -> list[tuple[int, str]]:
        reply = json.loads(holdfast("status", "--json", dsn=silenced.dsn).stdout)["needs"]
        return [(n["count"], n["command"]) for n in reply if n["kind"] == "proposals_waiting"]

    assert needs() == []
    id_ = silenced.proposed()
    assert needs() == [(1, "holdfast proposal list")]
    silenced.approved()
    assert needs() == [(1, "holdfast proposal list")]
    assert silenced.ask("--proposal", id_)[0] == ExitCode.OK
    assert needs() == []


def test_people_see_the_command_where_they_see_the_state(silenced: Silenced) -> None:
    shown = holdfast("subject", "show", "m_1", dsn=silenced.dsn).stdout
    assert "holdfast subject repair --stream payouts --reason TEXT m_1" in shown
    reply = holdfast("subject", "repair", "m_1", "--stream", "payouts", *WHY, dsn=silenced.dsn)
    assert reply.returncode == ExitCode.DEGRADED
    assert "holdfast proposal approve" in reply.stdout
    for wrong, code in (
        ((), "missing_parameter"),
        (("--stream", "payouts", "--proposal", "00000000"), "conflicting_parameters"),
        (("--proposal", "00000000", "--to-nothing"), "conflicting_parameters"),
        (("--proposal", "00000000", "--to-type", "a"), "conflicting_parameters"),
    ):
        exit_code, _, error = silenced.ask(*wrong, "--json")
        assert (exit_code, json.loads(error)["code"]) == (ExitCode.USAGE, code)
    assert silenced.ask("--proposal", "00000000")[0] == ExitCode.NOTHING_MATCHED


def _apply(dsn: str, id_: str) -> int:
    command = ("subject", "repair", "m_1", "--proposal", id_, *WHY)
    return holdfast(*command, dsn=dsn, process=True).returncode


def _one_waits(db: psycopg.Connection) -> Callable[[], bool]:
    return lambda: db.execute(LOCKED).fetchone() == (1,)


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


def test_suppressed_decisions_are_listed_by_page_and_filter(written: str) -> None:
    code, reply = _json(written, "suppressed", "list")
    assert code == ExitCode.OK
    keys = [row["key"] for row in reply["suppressed"]]
    assert sorted(keys) == sorted(_key(row) for row in [OVERTAKEN, *REPEATED])
    assert reply["next_before"] is None

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
        _, reply = _json(written, "suppressed", "list", *arguments)
        assert [row["key"] for row in reply["suppressed"]] == [_key(row) for row in rows]


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
def test_unknown_or_invalid_object_is_explained(
    written: str, arguments: tuple[str, ...], code: ExitCode
) -> None:
    assert _json(written, "suppressed", *arguments)[0] == code


def test_suppressed_decision_is_shown_with_content_and_state(written: str) -> None:
    code, row = _json(written, "suppressed", "show", _key(OVERTAKEN))
    assert code == ExitCode.OK
    assert (row["subject"], row["cause"], row["type"]) == ("m_1", "overtaken", RELEASE)
    assert row["key_parts"] == OVERTAKEN["key"]
    assert json.loads(row["data"]) == OVERTAKEN["data"]
    assert (row["batch"]["stream"], row["batch"]["batch_id"]) == ("payouts", 1)
    assert (row["state"]["stream"], row["state"]["last_type"]) == ("payouts", BLOCK)


def test_query_for_a_suppressed_key_names_the_next_command(written: str) -> None:
    key = _key(OVERTAKEN)
    where = f"holdfast suppressed show {key}"
    reply = _json(written, "why", key)[1]
    assert (reply["verdict"], reply["answer"]["command"]) == ("suppressed", where)
    for command in (("entry", "show"), ("trace",)):
        done = holdfast(*command, key, dsn=written, code=ExitCode.NOTHING_MATCHED)
        message = " ".join(done.stderr.split())
        assert where in message
        assert "(overtaken)" in message
        assert "batch 1 of stream 'payouts'" in message


def test_overtaken_decisions_are_counted_and_need_nobody(written: str) -> None:
    for command in ("status", "overview"):
        _, reply = _json(written, command)
        assert reply["overtaken_rows"] == 1
        assert "silenced_subjects" not in [need["kind"] for need in reply["needs"]]
        done = holdfast(command, dsn=written).stdout
        assert "1 decision overtaken: holdfast suppressed list --cause overtaken" in done


def test_silenced_subject_needs_a_person_until_repaired(world: World) -> None:
    _silence(world.dsn, world.db)
    code, reply = _json(world.dsn, "status")
    assert code == ExitCode.DEGRADED
    [need] = [need for need in reply["needs"] if need["kind"] == "silenced_subjects"]
    assert (need["count"], need["command"]) == (1, "holdfast subject list --silenced")
    _, listed = _json(world.dsn, "subject", "list", "--silenced")
    assert [row["name"] for row in listed["subjects"]] == ["m_1"]
    _, shown = _json(world.dsn, "subject", "show", "m_1")
    assert [(row["stream"], row["ahead"]) for row in shown["transitions"]] == [("payouts", True)]
    world.holdfast("subject", "list", "--silenced", "--held", "any", code=ExitCode.USAGE)

    world.db.execute("SET ROLE holdfast_operator")
    world.db.execute("UPDATE holdfast.transition SET last_occurred_at = now() WHERE ahead")
    _, reply = _json(world.dsn, "overview")
    assert "silenced_subjects" not in [need["kind"] for need in reply["needs"]]
    assert world.holdfast("subject", "list", "--silenced").returncode == (ExitCode.NOTHING_MATCHED)


def test_status_reports_events_late_by_a_watermark_ahead(dsn: str, db: psycopg.Connection) -> None:
    add = """
        INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type, amount_minor,
            currency, occurred_at, watermark, written_at)
        SELECT 'payouts', reason::holdfast.late_reason, reason || ahead, 'm', 't', 1, 'USD', now(),
            now() - written + ahead, now() - written
        FROM (VALUES ('late', '-30 s'::interval, '1 s'::interval), ('late', '210 s', '1 s'),
            ('late', '210 s', '2 d'), ('future_dated', '210 s', '1 s')
        ) AS given (reason, ahead, written)"""
    db.execute(add)
    code, reply = _json(dsn, "status")
    [need] = [need for need in reply["needs"] if need["kind"] == "watermark_ahead"]
    assert (code, need["count"]) == (ExitCode.DEGRADED, 1)
    assert need["command"] == "holdfast late-event list --reason late --stream payouts"
    db.execute("UPDATE holdfast.late_event SET watermark = written_at - interval '1 s'")
    assert "watermark_ahead" not in [need["kind"] for need in _json(dsn, "status")[1]["needs"]]


def test_a_date_within_the_tolerance_silences_nobody(dsn: str, db: psycopg.Connection) -> None:
    _silence(dsn, db, ahead=timedelta(hours=23))
    _, reply = _json(dsn, "status")
    assert "silenced_subjects" not in [need["kind"] for need in reply["needs"]]


def test_silenced_subject_shows_its_expected_state_and_cost(world: World) -> None:
    _silence(world.dsn, world.db)
    reports = Driver(world.dsn, stream="reports")
    reports.batch(0, decision("m_1", 9, "report.daily"))
    reports.sink.close()
    with Repairs.connect(world.dsn) as store:
        rows = store.states("m_1")
        with raises_code("unknown_subject"):
            store.states("m_9")
    payouts, others = rows["states"]
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
    code, reply = _json(written, "check", "--since", "1h")
    assert code == ExitCode.FAILED
    assert [violation["rule"] for violation in reply["violations"]] == ["batch_suppressed"]


def test_check_misses_no_suppressed_row_of_a_dropped_day(world: World, written: str) -> None:
    day = age(world.db, OLD)
    add_days(world.db, OLD)
    asked = ("check", "--since", f"{OLD + 5}d")
    code, reply = _json(written, *asked)
    assert (code, reply["counted"]["batches"]) == (ExitCode.OK, 3)
    world.db.execute(f"DROP TABLE holdfast.suppressed_{day:%Y%m%d}".encode())
    assert _json(written, *asked)[0] == ExitCode.OK


def test_suppressed_decisions_are_pruned_like_entries(world: World, written: str) -> None:
    age(world.db, OLD)
    reply = _json(written, "db", "prune", "--older-than", "90d", "--reason", "t")[1]
    outcomes = {day["outcome"] for day in reply["days"] if day["table"] == "suppressed"}
    assert outcomes == {"dropped"}
    assert world.db.execute("SELECT count(*) FROM holdfast.suppressed").fetchone() == (0,)
