"""`holdfast suppressed write`: an overtaken decision is written by two people, once."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.suppressed import actions as operation
from holdfast.dispatcher.operators.suppressed.rules import new_key_of
from holdfast.dispatcher.operators.suppressed.store import OvertakenDecisions
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.delivery import OLD, age
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.job_outcome import sequences
from tests.support.world import World

pytestmark = pytest.mark.rest


WHY = ("--reason", "silenced by a wrong date")
LOST = decision("m_1", 3, BLOCK, minor=9_007_199_254_740_991)
KEY = Key.of(LOST["key"])
NEW = new_key_of(KEY).text
AUDIT = """
    SELECT target, detail FROM holdfast.operator_action WHERE action = 'suppressed.write'
"""


class Desk:
    """Subject m_1, blocked, released by a date ahead; then a block of it was overtaken."""

    def __init__(self, dsn: str, db: psycopg.Connection) -> None:
        self.dsn, self.db = dsn, db
        [now] = db.execute("SELECT clock_timestamp()").fetchall()[0]
        self.spark = Driver(dsn, future_tolerance=timedelta(days=9))
        self.spark.batch(0, decision("m_1", 1))
        ahead = now + timedelta(days=3)
        self.spark.batch(1, decision("m_1", 2, RELEASE, occurred_at=ahead))
        self.spark.batch(2, LOST)

    def ask(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        done = holdfast(*arguments, *WHY, "--json", dsn=self.dsn)
        return done.returncode, json.loads(done.stdout or "{}"), " ".join(done.stderr.split())

    def write(self, *arguments: str, key: str = KEY.text) -> tuple[int, dict[str, Any], str]:
        return self.ask("suppressed", "write", key, *arguments)

    def agreed(self, *command: str) -> str:
        """Propose, and let a second person approve; returns the proposal's id."""
        code, told, error = self.ask(*command)
        assert code == ExitCode.DEGRADED, error
        id_ = str(told["proposal"])
        with acting_as("second"):
            done = holdfast("proposal", "approve", id_, *WHY, dsn=self.dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        return id_

    def repair(self) -> None:
        id_ = self.agreed("subjects", "repair", "m_1", "--stream", "payouts")
        assert self.ask("subjects", "repair", "m_1", "--proposal", id_)[0] == ExitCode.OK

    def approved(self, key: str = KEY.text) -> str:
        return self.agreed("suppressed", "write", key)

    def audited(self) -> list[tuple[Any, ...]]:
        return self.db.execute(AUDIT).fetchall()


@pytest.fixture
def silenced(dsn: str, db: psycopg.Connection) -> Iterator[Desk]:
    result = Desk(dsn, db)
    yield result
    result.spark.sink.close()


@pytest.fixture
def desk(silenced: Desk) -> Desk:
    silenced.repair()
    return silenced


def test_two_people_write_an_overtaken_decision_once(world: World, desk: Desk) -> None:
    world.add_endpoint()
    code, told, error = desk.write()
    assert (code, told["new_key"]) == (ExitCode.DEGRADED, NEW), error
    assert (told["newest"]["last_type"], told["newest"]["last_sequence"]) == (RELEASE, 2)
    id_ = told["proposal"]
    assert desk.write()[1]["proposal"] == id_
    assert sequences(world.db, "m_1") == [1, 2]
    with acting_as("second"):
        approved = world.holdfast("proposal", "approve", id_, *WHY)
    apply = f"holdfast suppressed write --proposal {id_[:8]} --reason TEXT {KEY.text}"
    assert apply in approved.stdout

    code, done, error = desk.write("--proposal", id_)
    assert (code, done["new_key"]) == (ExitCode.OK, NEW), error
    world.drain()
    assert [seen.header("webhook-id") for seen in world.receiver.seen][2:] == [NEW]
    [*_, seen] = world.receiver.seen
    assert (seen.sequence, seen.content["type"], seen.content["data"]) == (3, BLOCK, LOST["data"])
    [(target, detail)] = desk.audited()
    assert (target, detail["subject"], detail["type"]) == (KEY.text, "m_1", BLOCK)
    assert (detail["new_key"], detail["sha256"]) == (NEW, told["sha256"])
    assert (detail["proposal"], detail["approved_by"]) == (id_, "second")
    violated = json.loads(world.holdfast("check", "--json").stdout)["violations"]
    assert {each["rule"] for each in violated} <= {"unaudited"}, "the endpoint of the test alone"
    shown = json.loads(world.holdfast("suppressed", "show", KEY.text, "--json").stdout)
    assert shown["written_as"] == NEW
    # What the job decides next is compared with it.
    desk.spark.batch(3, decision("m_1", 5, BLOCK), decision("m_1", 6, RELEASE))
    assert sequences(world.db, "m_1") == [1, 2, 3, 4]


def test_write_shows_the_newer_decision_of_another_stream(desk: Desk) -> None:
    newer = decision("m_1", 9, RELEASE)
    other = Driver(desk.dsn, stream="second")
    other.batch(0, newer)
    id_ = desk.approved()
    _, told, _ = desk.write()
    assert told["proposal"] == id_
    assert (told["overtakes"]["stream"], told["overtakes"]["key"]) == (
        "second",
        Key.of(newer["key"]).text,
    )
    other.batch(1, decision("m_1", 10))
    other.sink.close()
    code, _, error = desk.write("--proposal", id_)
    assert (code, "changed since proposal" in error) == (ExitCode.FAILED, True), error
    assert desk.write("--proposal", desk.approved())[0] == ExitCode.OK


def test_overtaken_decision_asked_for_twice_is_written_once(desk: Desk) -> None:
    id_ = desk.approved()
    assert desk.write("--proposal", id_)[0] == ExitCode.OK
    assert desk.write("--proposal", id_, "--despite-later")[0] == ExitCode.USAGE
    for again in (("--proposal", id_), ()):
        assert desk.write(*again)[0] == ExitCode.FAILED
    assert NEW in desk.write()[2]
    assert sequences(desk.db, "m_1") == [1, 2, 3]
    assert len(desk.audited()) == 1


def test_one_person_alone_writes_no_overtaken_decision(desk: Desk) -> None:
    id_ = desk.write()[1]["proposal"]
    holdfast("proposal", "approve", id_, *WHY, dsn=desk.dsn, code=ExitCode.FAILED)
    code, _, error = desk.write("--proposal", id_)
    assert (code, "second person" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2], [])


def test_crash_before_booking_writes_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = desk.approved()
    audit = OvertakenDecisions._audit

    def die(store: OvertakenDecisions, action: str, *words: Any) -> None:
        if action == "suppressed.write":
            raise CommandError("died")
        audit(store, action, *words)

    with monkeypatch.context() as patch:
        patch.setattr(OvertakenDecisions, "_audit", die)
        assert desk.write("--proposal", id_)[0] == ExitCode.FAILED
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2, 3], [])
    # The state moved by the write itself, and by the job since: nothing of that matters now.
    desk.spark.batch(3, decision("m_1", 5, RELEASE))
    code, done, error = desk.write("--proposal", id_)
    assert (code, "was written before" in done.get("detail", "")) == (ExitCode.OK, True), error
    assert (sequences(desk.db, "m_1"), len(desk.audited())) == ([1, 2, 3, 4], 1)


def test_silenced_subject_must_be_repaired_first(silenced: Desk) -> None:
    code, _, error = silenced.write()
    assert (code, "holdfast subjects repair" in error) == (ExitCode.FAILED, True)


def test_decision_whose_subject_moved_meanwhile_is_not_written(desk: Desk) -> None:
    id_ = desk.approved()
    desk.spark.batch(3, decision("m_1", 2, BLOCK))
    code, _, error = desk.write("--proposal", id_)
    assert (code, "propose again" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2, 3], [])


def test_decision_overtaken_meanwhile_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, write = desk.approved(), operation.writer()

    def later(*arguments: Any, **options: Any) -> Any:
        desk.spark.batch(3, decision("m_1", 4, BLOCK), decision("m_1", 5, RELEASE))
        return write(*arguments, **options)

    monkeypatch.setattr(operation, "writer", lambda: later)
    code, _, error = desk.write("--proposal", id_)
    assert (code, "was not written" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2, 3, 4], [])
    [state] = desk.db.execute("SELECT last_type FROM holdfast.transition").fetchall()
    assert state == (RELEASE,)


def test_decision_with_a_later_suppressed_repeat_is_not_written(desk: Desk) -> None:
    id_ = desk.approved()
    # The subject is released: the release changes nothing and leaves its state as it is.
    desk.spark.batch(3, decision("m_1", 4, RELEASE))
    code, _, error = desk.write("--proposal", id_)
    assert (code, "propose again" in error) == (ExitCode.FAILED, True)
    code, _, error = desk.write()
    assert (code, "repeated" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2], [])


def test_decision_that_repeats_one_is_refused(desk: Desk) -> None:
    repeated = decision("m_1", 4, RELEASE)
    desk.spark.batch(3, repeated)
    code, _, error = desk.write(key=Key.of(repeated["key"]).text)
    assert (code, "change nothing" in error) == (ExitCode.FAILED, True)


def test_later_contrary_decision_is_overruled_only_on_purpose(silenced: Desk) -> None:
    release = decision("m_1", 4, RELEASE)
    silenced.spark.batch(3, release)
    silenced.repair()
    code, _, error = silenced.write()
    assert (code, "--despite-later" in error) == (ExitCode.FAILED, True)
    told = silenced.write("--despite-later")[1]
    assert (told["later"], told["newest_later"]["type"]) == (1, RELEASE)
    command = ("suppressed", "write", KEY.text, "--despite-later", *WHY)
    shown = holdfast(*command, dsn=silenced.dsn)
    assert (shown.returncode, Key.of(release["key"]).text in shown.stdout) == (4, True)
    # The subject is released already, so this one changes nothing.
    assert silenced.write(key=Key.of(release["key"]).text)[0] == ExitCode.FAILED


def test_decision_of_another_proposal_or_of_a_pruned_day_is_not_written(desk: Desk) -> None:
    id_ = desk.approved()
    assert desk.write("--proposal", id_, key=NEW)[0] == ExitCode.FAILED
    assert desk.write(key=NEW)[0] == ExitCode.NOTHING_MATCHED
    assert desk.write(key="x")[0] == ExitCode.USAGE
    day = age(desk.db, OLD)
    desk.db.execute(f"DROP TABLE holdfast.suppressed_{day:%Y%m%d}".encode())
    for again in ((), ("--proposal", id_)):
        assert desk.write(*again)[0] == ExitCode.NOTHING_MATCHED
    assert desk.audited() == []
