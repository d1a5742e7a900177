"""Suppressed decisions that are written, and missing entries that are passed."""

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.suppressed import verbs
from holdfast.dispatcher.operators.suppressed.rules import new_key_of
from holdfast.dispatcher.operators.suppressed.store import OvertakenDecisions
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.delivery import OLD, age, lanes
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.dispatch.webhooks import answer
from tests.support.job.driver import Driver
from tests.support.job.job_stream import sequences
from tests.support.world import World

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
        code, reply, error = self.ask(*command)
        assert code == ExitCode.DEGRADED, error
        id_ = str(reply["proposal"])
        with acting_as("second"):
            done = holdfast("proposal", "approve", id_, *WHY, dsn=self.dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        return id_

    def repair(self) -> None:
        id_ = self.agreed("subject", "repair", "m_1", "--stream", "payouts")
        assert self.ask("subject", "repair", "m_1", "--proposal", id_)[0] == ExitCode.OK

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


@pytest.mark.rest
def test_two_people_write_an_overtaken_decision_once(world: World, desk: Desk) -> None:
    world.add_endpoint()
    code, reply, error = desk.write()
    assert (code, reply["new_key"]) == (ExitCode.DEGRADED, NEW), error
    assert (reply["newest"]["last_type"], reply["newest"]["last_sequence"]) == (RELEASE, 2)
    id_ = reply["proposal"]
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
    assert (detail["new_key"], detail["sha256"]) == (NEW, reply["sha256"])
    assert (detail["proposal"], detail["approved_by"]) == (id_, "second")
    violated = json.loads(world.holdfast("check", "--json").stdout)["violations"]
    assert {each["rule"] for each in violated} <= {"unaudited"}, "the endpoint of the test alone"
    shown = json.loads(world.holdfast("suppressed", "show", KEY.text, "--json").stdout)
    assert shown["written_as"] == NEW
    # What the job decides next is compared with it.
    desk.spark.batch(3, decision("m_1", 5, BLOCK), decision("m_1", 6, RELEASE))
    assert sequences(world.db, "m_1") == [1, 2, 3, 4]


@pytest.mark.rest
def test_write_shows_the_newer_decision_of_another_stream(desk: Desk) -> None:
    newer = decision("m_1", 9, RELEASE)
    other = Driver(desk.dsn, stream="second")
    other.batch(0, newer)
    id_ = desk.approved()
    _, reply, _ = desk.write()
    assert reply["proposal"] == id_
    assert (reply["overtakes"]["stream"], reply["overtakes"]["key"]) == (
        "second",
        Key.of(newer["key"]).text,
    )
    other.batch(1, decision("m_1", 10))
    other.sink.close()
    code, _, error = desk.write("--proposal", id_)
    assert (code, "changed since proposal" in error) == (ExitCode.FAILED, True), error
    assert desk.write("--proposal", desk.approved())[0] == ExitCode.OK


@pytest.mark.rest
def test_overtaken_decision_asked_for_twice_is_written_once(desk: Desk) -> None:
    id_ = desk.approved()
    assert desk.write("--proposal", id_)[0] == ExitCode.OK
    assert desk.write("--proposal", id_, "--despite-later")[0] == ExitCode.USAGE
    for again in (("--proposal", id_), ()):
        assert desk.write(*again)[0] == ExitCode.FAILED
    assert NEW in desk.write()[2]
    assert sequences(desk.db, "m_1") == [1, 2, 3]
    assert len(desk.audited()) == 1


@pytest.mark.rest
def test_one_person_writes_no_overtaken_decision(desk: Desk) -> None:
    id_ = desk.write()[1]["proposal"]
    holdfast("proposal", "approve", id_, *WHY, dsn=desk.dsn, code=ExitCode.FAILED)
    code, _, error = desk.write("--proposal", id_)
    assert (code, "second person" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2], [])


@pytest.mark.rest
def test_crash_before_booking_writes_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = desk.approved()
    audit = OvertakenDecisions._audit

    def die(store: OvertakenDecisions, action: str, *words: Any) -> None:
        if action == "suppressed.write":
            raise CommandError("died", code="died")
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


@pytest.mark.rest
def test_silenced_subject_must_be_repaired_first(silenced: Desk) -> None:
    code, _, error = silenced.write()
    assert (code, "holdfast subject repair" in error) == (ExitCode.FAILED, True)


@pytest.mark.rest
def test_decision_whose_subject_moved_meanwhile_is_not_written(desk: Desk) -> None:
    id_ = desk.approved()
    desk.spark.batch(3, decision("m_1", 2, BLOCK))
    code, _, error = desk.write("--proposal", id_)
    assert (code, "propose again" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2, 3], [])


@pytest.mark.rest
def test_decision_overtaken_meanwhile_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, write = desk.approved(), verbs.writer()

    def later(*arguments: Any, **options: Any) -> Any:
        desk.spark.batch(3, decision("m_1", 4, BLOCK), decision("m_1", 5, RELEASE))
        return write(*arguments, **options)

    monkeypatch.setattr(verbs, "writer", lambda: later)
    code, _, error = desk.write("--proposal", id_)
    assert (code, "was not written" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2, 3, 4], [])
    [state] = desk.db.execute("SELECT last_type FROM holdfast.transition").fetchall()
    assert state == (RELEASE,)


@pytest.mark.rest
def test_decision_with_a_later_suppressed_repeat_is_not_written(desk: Desk) -> None:
    id_ = desk.approved()
    # The subject is released: the release changes nothing and leaves its state as it is.
    desk.spark.batch(3, decision("m_1", 4, RELEASE))
    code, _, error = desk.write("--proposal", id_)
    assert (code, "propose again" in error) == (ExitCode.FAILED, True)
    code, _, error = desk.write()
    assert (code, "repeated" in error) == (ExitCode.FAILED, True)
    assert (sequences(desk.db, "m_1"), desk.audited()) == ([1, 2], [])


@pytest.mark.rest
def test_decision_that_repeats_one_is_refused(desk: Desk) -> None:
    repeated = decision("m_1", 4, RELEASE)
    desk.spark.batch(3, repeated)
    code, _, error = desk.write(key=Key.of(repeated["key"]).text)
    assert (code, "change nothing" in error) == (ExitCode.FAILED, True)


@pytest.mark.rest
def test_later_contrary_decision_is_overruled_only_on_purpose(silenced: Desk) -> None:
    release = decision("m_1", 4, RELEASE)
    silenced.spark.batch(3, release)
    silenced.repair()
    code, _, error = silenced.write()
    assert (code, "--despite-later" in error) == (ExitCode.FAILED, True)
    reply = silenced.write("--despite-later")[1]
    assert (reply["later"], reply["newest_later"]["type"]) == (1, RELEASE)
    command = ("suppressed", "write", KEY.text, "--despite-later", *WHY)
    shown = holdfast(*command, dsn=silenced.dsn)
    assert (shown.returncode, Key.of(release["key"]).text in shown.stdout) == (4, True)
    # The subject is released already, so this one changes nothing.
    assert silenced.write(key=Key.of(release["key"]).text)[0] == ExitCode.FAILED


@pytest.mark.rest
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


LOSE = """
    DELETE FROM holdfast.entry e USING holdfast.subject s
    WHERE s.id = e.subject_id AND s.name = %s AND e.sequence BETWEEN %s AND %s
"""

AUDIT_OF_PASS = (
    "SELECT target, reason, detail FROM holdfast.operator_action WHERE action = 'lane.pass'"
)


def passed(dsn: str, *words: str) -> dict[str, Any]:
    return holdfast(
        "subject", "pass", *words, "--reason", "dropped", "--json", dsn=dsn, code=ExitCode.OK
    ).json


def refused(dsn: str, *words: str, code: ExitCode) -> str:
    before = lanes_of(dsn)
    done = holdfast("subject", "pass", *words, "--reason", "dropped", dsn=dsn, code=code)
    assert "nothing was changed" in done.stderr
    assert lanes_of(dsn) == before
    return done.stderr


def lanes_of(dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn, autocommit=True) as db:
        return lanes(db)


def test_lane_continues_after_its_missing_entries_are_passed(world: World) -> None:
    world.add_endpoint(state="disabled")
    world.write("m_1", "m_1", "m_1", "m_1", "m_1", "m_2", "m_2")
    world.drain()
    for lost in (("m_1", 1, 2), ("m_1", 4, 4), ("m_2", 1, 2)):
        world.db.execute(LOSE, lost)
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    world.drain()
    assert world.receiver.seen == []
    why = world.holdfast("why", "m_1")
    assert "holdfast subject pass --endpoint payouts --reason TEXT m_1" in why.stdout

    done = passed(world.dsn, "m_1", "--endpoint", "payouts")
    assert [done[name] for name in ("passed_from", "passed_to", "next_sequence")] == [1, 2, 3]
    world.drain()
    # The next gap is another decision to give up.
    assert world.receiver.sequences("m_1") == [3]
    done = passed(world.dsn, "m_1", "--endpoint", "payouts")
    assert [done[name] for name in ("passed_from", "passed_to", "next_sequence")] == [4, 4, 5]
    reply = world.holdfast("subject", "pass", "m_2", "--endpoint", "payouts", "--reason", "dropped")
    assert reply.stdout == "m_2 at payouts: skipped sequences 1 to 2; it is idle\n"
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([3, 5], [])
    world.write("m_2")
    world.drain()
    assert world.receiver.sequences("m_2") == [3]
    audited = world.db.execute(AUDIT_OF_PASS).fetchall()
    assert [(target, reason) for target, reason, _ in audited] == [
        ("subject m_1", "dropped"),
        ("subject m_1", "dropped"),
        ("subject m_2", "dropped"),
    ]
    assert [int(detail["passed_to"]) for _, _, detail in audited] == [2, 4, 2]


def test_lane_without_a_gap_ahead_stays(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    world.add_endpoint(world.receiver.url, name="paused", state="paused", types=[BLOCK])
    world.write("m_1", "m_dead", "m_dead")
    world.receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    world.drain()
    at = ("--endpoint", "payouts")
    assert "nothing to deliver" in refused(world.dsn, "m_1", *at, code=ExitCode.NOTHING_MATCHED)
    assert "no lane" in refused(world.dsn, "m_9", *at, code=ExitCode.NOTHING_MATCHED)
    assert "no lane" in refused(world.dsn, "m_1", "--endpoint", "e", code=ExitCode.NOTHING_MATCHED)
    waits = refused(world.dsn, "m_1", "--endpoint", "paused", code=ExitCode.NOTHING_MATCHED)
    assert "nothing is missing" in waits
    # Sequence 1 is stored, and was never wanted here: nothing waits for it.
    world.write("m_3", type_=RELEASE)
    world.write("m_3")
    world.drain()
    unwanted = refused(world.dsn, "m_3", "--endpoint", "paused", code=ExitCode.NOTHING_MATCHED)
    assert "nothing is missing" in unwanted
    world.db.execute(LOSE, ["m_dead", 1, 1])
    assert "a dead letter holds" in refused(world.dsn, "m_dead", *at, code=ExitCode.FAILED)
    world.db.execute(LOSE, ["m_1", 1, 1])
    world.db.execute("""
        UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now() + interval '1 min'
        WHERE due_at IS NOT NULL
    """)
    under_way = refused(world.dsn, "m_1", "--endpoint", "paused", code=ExitCode.FAILED)
    assert "under way" in under_way


def test_advised_command_passes_only_the_lane_of_its_subject(world: World) -> None:
    odd = ("m  two", "m two", "m\ttab", "-x", "it's $(x)", "a" * 400, "whsec_abcdefgh")
    world.add_endpoint(state="disabled")
    for name in odd:
        world.write(name, name)
    world.drain()
    for name in odd:
        world.db.execute(LOSE, (name, 1, 1))
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    advised = []
    for name in odd:
        reply = holdfast("why", "--json", "--", name, dsn=world.dsn, code=ExitCode.DEGRADED)
        [lane] = reply.json["endpoints"]
        advised.append(lane["command"])
    script = "".join(f"{command}; echo;" for command in advised)
    taken = subprocess.run(
        ["/bin/bash", "-c", f"holdfast() {{ printf '%s\\0' \"$@\"; }}; {script}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in taken.split("\0\n")[:-1]:
        holdfast(*line.split("\0"), dsn=world.dsn, code=ExitCode.OK)
    assert [target for target, _, _ in world.db.execute(AUDIT_OF_PASS)] == [
        f"subject {name}" for name in odd
    ]
