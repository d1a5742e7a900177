"""`holdfast subjects repair`: a silenced subject is put right by two people, and only as it was."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.subjects.store import Repairs
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.entries import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import sequences
from tests.support.waiting import eventually

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
        done = holdfast("subjects", "repair", "m_1", *arguments, *WHY, "--json", dsn=self.dsn)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def proposed(self, *arguments: str) -> str:
        code, told, error = self.ask("--stream", "payouts", *arguments)
        assert code == ExitCode.DEGRADED, error
        return str(told["proposal"])

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
    found = Silenced(dsn, db)
    yield found
    for spark in found.drivers:
        spark.sink.close()


def test_silenced_subject_is_put_right_by_two_people_and_decides_again(silenced: Silenced) -> None:
    before = silenced.states()
    code, told, error = silenced.ask("--stream", "payouts")
    assert code == ExitCode.DEGRADED, error
    becomes = {"last_type": RELEASE, "last_occurred_at": "2026-11-02T12:15:00Z"}
    assert (told["after"], told["state"]["overtaken_count"]) == (becomes, 2)
    id_ = told["proposal"]
    assert silenced.proposed() == id_
    code, _, error = silenced.ask("--proposal", id_)
    assert (code, "second person" in error) == (ExitCode.FAILED, True)
    alone = holdfast("proposal", "approve", id_, *WHY, dsn=silenced.dsn)
    assert (alone.returncode, "that is you" in alone.stderr) == (ExitCode.FAILED, True)
    with acting_as("second"):
        approved = holdfast("proposal", "approve", id_, *WHY, dsn=silenced.dsn)
    assert f"holdfast subjects repair --proposal {id_[:8]} --reason TEXT m_1" in approved.stdout
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


def test_other_subjects_and_other_streams_keep_their_states(silenced: Silenced, dsn: str) -> None:
    reports = Driver(dsn, stream="reports")
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
    command = ("subjects", "repair", "m_2", "--proposal", id_, *WHY)
    assert holdfast(*command, dsn=silenced.dsn).returncode == ExitCode.FAILED
    assert silenced.db.execute(AUDIT).fetchall() == []
    assert before[0] in silenced.states()


@pytest.mark.parametrize("nothing", [True, False], ids=["nothing", "a state"])
def test_state_of_which_nothing_is_stored_is_said_by_the_operator(
    silenced: Silenced, nothing: bool
) -> None:
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


def test_state_that_the_sink_moved_after_it_was_proposed_is_left_alone(silenced: Silenced) -> None:
    id_ = silenced.approved()
    further = silenced.ahead + timedelta(days=1)
    silenced.spark.batch(3, decision("m_1", 6, BLOCK, occurred_at=further))
    code, _, error = silenced.ask("--proposal", id_)
    assert (code, "propose again" in " ".join(error.split())) == (ExitCode.FAILED, True)
    assert silenced.states() == [("payouts", BLOCK, further)]
    assert silenced.db.execute(AUDIT).fetchall() == []
    assert silenced.proposed() != id_


def test_repair_waits_for_a_batch_that_is_being_written_and_is_refused_by_what_it_wrote(
    silenced: Silenced,
) -> None:
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


def test_batch_waits_for_a_repair_and_is_judged_by_the_state_that_it_made(
    silenced: Silenced,
) -> None:
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


def test_what_was_changed_in_the_proposal_is_not_done(silenced: Silenced) -> None:
    id_, before = silenced.approved(), silenced.states()
    silenced.db.execute("""
        UPDATE holdfast.proposal SET detail = jsonb_set(detail, '{after,last_type}', '"x"')
    """)
    assert silenced.ask("--proposal", id_)[0] == ExitCode.FAILED
    assert silenced.states() == before


def test_open_proposals_need_a_person_until_they_are_applied(silenced: Silenced) -> None:
    def needs() -> list[tuple[int, str]]:
        told = json.loads(holdfast("status", "--json", dsn=silenced.dsn).stdout)["needs"]
        return [(n["count"], n["command"]) for n in told if n["kind"] == "proposals_waiting"]

    assert needs() == []
    id_ = silenced.proposed()
    assert needs() == [(1, "holdfast proposal list")]
    silenced.approved()
    assert needs() == [(1, "holdfast proposal list")]
    assert silenced.ask("--proposal", id_)[0] == ExitCode.OK
    assert needs() == []


def test_people_see_the_command_where_they_see_the_state(silenced: Silenced) -> None:
    shown = holdfast("subjects", "show", "m_1", dsn=silenced.dsn).stdout
    assert "holdfast subjects repair --stream payouts --reason TEXT m_1" in shown
    told = holdfast("subjects", "repair", "m_1", "--stream", "payouts", *WHY, dsn=silenced.dsn)
    assert told.returncode == ExitCode.DEGRADED
    assert "holdfast proposal approve" in told.stdout
    for both in ((), ("--stream", "payouts", "--proposal", "00000000")):
        assert silenced.ask(*both)[0] == ExitCode.USAGE
    assert silenced.ask("--proposal", "00000000")[0] == ExitCode.NOTHING_MATCHED


def _apply(dsn: str, id_: str) -> int:
    command = ("subjects", "repair", "m_1", "--proposal", id_, *WHY)
    return holdfast(*command, dsn=dsn, process=True).returncode


def _one_waits(db: psycopg.Connection) -> Callable[[], bool]:
    return lambda: db.execute(LOCKED).fetchone() == (1,)
