"""Decisions by hand, with the real sink, dispatcher and receiver."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.decisions.actions import apply, decide
from holdfast.dispatcher.operators.decisions.rules import Action
from holdfast.dispatcher.operators.decisions.store import Decisions
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

AUDIT = """
    SELECT action, target, detail ->> 'key' FROM holdfast.operator_action
    WHERE action LIKE 'decide.%' ORDER BY id
"""
ENTRIES = """
    SELECT e.sequence, e.type FROM holdfast.entry e JOIN holdfast.subject s ON s.id = e.subject_id
    WHERE s.name = %s ORDER BY e.sequence
"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()"""
WINDOW = """
    INSERT INTO holdfast.exposure_window (stream, merchant_id, window_start, window_end, revision,
        exposure_minor, currency, policy_version)
    VALUES ('payouts', 'm_1', '2026-11-02T12:00Z', '2026-11-02T12:15Z', 1, 1, 'USD', 'v1')
"""


class Desk:
    """A job that decides about m_1 in stream `payouts`, and a person who does, too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.spark = Driver(world.dsn, suppress_repeats=True)
        self.spark.batch(0, decision("m_1", 1))
        self.last = 0

    def decide(
        self, action: Action, subject: str = "m_1", stream: str = "payouts", **known: Any
    ) -> dict[str, Any]:
        """Decide as the command does once its question is answered."""
        known = {"id_": uuid4(), "seen": None, **known}
        with Decisions.connect(self.world.dsn) as store:
            return decide(self.world.dsn, store, stream, subject, action, reason="fraud", **known)

    def apply(self, action: Action, proposal: UUID) -> dict[str, Any]:
        with Decisions.connect(self.world.dsn) as store:
            return apply(self.world.dsn, store, "m_1", action, proposal, "fraud")

    def approve(self, proposal: UUID) -> None:
        with acting_as("second"), Decisions.connect(self.world.dsn) as store:
            store.approve(proposal, "seen")

    def job(self, *rows: dict[str, Any]) -> None:
        """One more batch of the job."""
        self.last += 1
        self.spark.batch(self.last, *rows)

    def entries(self, subject: str = "m_1") -> list[tuple[Any, ...]]:
        return self.world.db.execute(ENTRIES, [subject]).fetchall()


@pytest.fixture
def desk(world: World) -> Iterator[Desk]:
    world.endpoint()
    desk = Desk(world)
    yield desk
    desk.spark.sink.close()


def test_decision_by_hand_is_delivered_as_its_preview_says(desk: Desk, world: World) -> None:
    command = ("decide", "release", "m_1", "--stream", "payouts", "--reason", "cleared", "--json")
    shown = json.loads(world.holdfast(*command, "--dry-run").stdout)
    assert desk.entries() == [(1, BLOCK)]
    done = world.holdfast(*command, "--id", shown["id"], "--yes")
    assert done.returncode == ExitCode.OK, done.stderr
    made = json.loads(done.stdout)
    assert (made["key"], made["sequence"], made["stream"]) == (shown["key"], 2, "payouts.decide")
    world.drain()
    [*_, seen] = world.receiver.seen
    told, body = json.loads(shown["body"]), seen.content
    assert body.pop("timestamp") >= told.pop("timestamp")
    assert body == told
    assert body["data"] == {"action": "release", "merchant_id": "m_1", "origin": "hand"}
    assert (shown["endpoints"], shown["overtakes"]) == (["payouts"], None)
    assert world.db.execute(AUDIT).fetchall() == [("decide.release", "subject m_1", made["key"])]
    world.check()


def test_repeated_decision_with_one_id_is_written_once(desk: Desk, world: World) -> None:
    id_ = uuid4()
    first = desk.decide(Action.BLOCK, "m_2", id_=id_)
    # As after a crash between the entry and its audit row.
    world.db.execute("DELETE FROM holdfast.operator_action WHERE action = 'decide.block'")
    assert desk.decide(Action.BLOCK, "m_2", id_=id_) == first
    assert desk.entries("m_2") == [(1, BLOCK)]
    assert len(world.db.execute(AUDIT).fetchall()) == 1


def test_decision_that_changes_nothing_is_refused(desk: Desk) -> None:
    for action in (Action.BLOCK, Action.RELEASE, Action.RELEASE):
        if action.type == desk.entries()[-1][1]:
            with raises_code("already_decided"):
                desk.decide(action)
        else:
            desk.decide(action)
    assert desk.entries() == [(1, BLOCK), (2, RELEASE)]


def test_job_that_would_overrule_a_person_keeps_the_verb_away(desk: Desk, world: World) -> None:
    world.db.execute(WINDOW)
    with raises_code("job_decides"):
        desk.decide(Action.RELEASE)
    _written(world, "new")
    with raises_code("stream_undecided"):
        desk.decide(Action.BLOCK, stream="new")
    assert desk.entries() == [(1, BLOCK)]


def test_stream_must_be_one_of_payout_holds_that_decides_itself(desk: Desk, world: World) -> None:
    desk.decide(Action.RELEASE)
    with raises_code("stream_written_by_hand"):
        desk.decide(Action.BLOCK, stream="payouts.decide")
    _written(world, "orders", decision("m_1", 1, "order.review"))
    with raises_code("other_types"):
        desk.decide(Action.BLOCK, stream="orders")


def _written(world: World, stream: str, *rows: dict[str, Any]) -> None:
    job = Driver(world.dsn, stream=stream)
    job.batch(0, *rows)
    job.sink.close()


def _ahead(world: World, desk: Desk) -> dict[str, Any]:
    """Let the job release m_1 two hours ahead, and propose a block; returns the proposal."""
    at = world.value("SELECT clock_timestamp()") + timedelta(hours=2)
    desk.job(decision("m_1", 2, RELEASE, occurred_at=at))
    made = desk.decide(Action.BLOCK)
    assert (made["written"], made["overtakes"]["type"]) == (False, RELEASE)
    return made


def test_newer_decision_is_overtaken_by_two_people_once(desk: Desk, world: World) -> None:
    proposed = _ahead(world, desk)
    with raises_code("second_person_required"):
        desk.apply(Action.BLOCK, proposed["proposal"])
    desk.approve(proposed["proposal"])
    short = proposed["proposal"].hex[:8]
    shown = world.holdfast("proposal", "show", short).stdout
    command = f"decide block --proposal {short} --reason TEXT m_1"
    assert f"holdfast {command}" in shown
    made = world.holdfast(*command.split(), "--yes", "--json")
    assert json.loads(made.stdout)["key"] == proposed["key"], made.stderr
    with raises_code("proposal_not_open"):
        desk.apply(Action.BLOCK, proposed["proposal"])
    assert desk.entries() == [(1, BLOCK), (2, RELEASE), (3, BLOCK)]


def test_approved_decision_is_not_written_after_another_one(desk: Desk, world: World) -> None:
    proposed = _ahead(world, desk)
    desk.approve(proposed["proposal"])
    at = world.value("SELECT clock_timestamp()") + timedelta(hours=3)
    desk.job(decision("m_1", 3, BLOCK, occurred_at=at))
    with raises_code("subject_changed"):
        desk.apply(Action.BLOCK, proposed["proposal"])
    assert desk.entries() == [(1, BLOCK), (2, RELEASE), (3, BLOCK)]
    assert world.db.execute(AUDIT).fetchall() == []


def test_of_two_people_who_saw_the_same_one_decides(desk: Desk) -> None:
    subjects = [f"m_{number}" for number in range(10, 14)]
    desk.job(*[decision(subject, 1) for subject in subjects])
    for subject in subjects:
        with ThreadPoolExecutor(3) as pool:
            done = [pool.submit(desk.decide, Action.RELEASE, subject, seen=1) for _ in range(3)]
        codes = [getattr(each.exception(), "code", None) for each in done]
        assert codes.count(None) == 1
        assert {*codes} <= {None, "subject_changed"}
        assert desk.entries(subject) == [(1, BLOCK), (2, RELEASE)]


def test_decision_does_not_follow_one_of_a_job_that_nobody_saw(desk: Desk, world: World) -> None:
    begun, ends = Event(), Event()

    def also(_connection: psycopg.Connection, _table: object) -> None:
        begun.set()
        assert ends.wait(30)

    job = Driver(world.dsn, stream="other", also=also)
    with ThreadPoolExecutor(2) as pool:
        batch = pool.submit(job.batch, 0, decision("m_1", 2, RELEASE))
        assert begun.wait(30)
        decided = pool.submit(desk.decide, Action.RELEASE, seen=1)
        eventually(lambda: world.value(WAITING))
        ends.set()
        batch.result()
        with raises_code("subject_changed"):
            decided.result()
    job.sink.close()
    assert desk.entries() == [(1, BLOCK), (2, RELEASE)]


def test_older_decision_of_the_job_does_not_follow_that_of_a_person(desk: Desk) -> None:
    desk.decide(Action.RELEASE)
    # Decided before, and written after it.
    desk.job(decision("m_1", 2, BLOCK), decision("m_2", 1, BLOCK))
    assert desk.entries() == [(1, BLOCK), (2, RELEASE)]
    assert desk.entries("m_2") == [(1, BLOCK)]
