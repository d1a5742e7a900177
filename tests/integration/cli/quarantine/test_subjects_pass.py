"""`holdfast subjects pass`: a lane goes on behind what is not stored any more, and only then."""

import subprocess
from typing import Any

import psycopg

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.delivery import lanes
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.world import World

LOSE = """
    DELETE FROM holdfast.entry e USING holdfast.subject s
    WHERE s.id = e.subject_id AND s.name = %s AND e.sequence BETWEEN %s AND %s
"""
AUDIT = "SELECT target, reason, detail FROM holdfast.operator_action WHERE action = 'lane.pass'"


def passed(dsn: str, *words: str) -> dict[str, Any]:
    return holdfast(
        "subjects", "pass", *words, "--reason", "dropped", "--json", dsn=dsn, code=ExitCode.OK
    ).json


def refused(dsn: str, *words: str, code: ExitCode) -> str:
    before = lanes_of(dsn)
    done = holdfast("subjects", "pass", *words, "--reason", "dropped", dsn=dsn, code=code)
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
    assert "holdfast subjects pass --endpoint payouts --reason TEXT m_1" in why.stdout

    done = passed(world.dsn, "m_1", "--endpoint", "payouts")
    assert [done[name] for name in ("passed_from", "passed_to", "next_sequence")] == [1, 2, 3]
    world.drain()
    # The next gap is another decision to give up.
    assert world.receiver.sequences("m_1") == [3]
    done = passed(world.dsn, "m_1", "--endpoint", "payouts")
    assert [done[name] for name in ("passed_from", "passed_to", "next_sequence")] == [4, 4, 5]
    told = world.holdfast("subjects", "pass", "m_2", "--endpoint", "payouts", "--reason", "dropped")
    assert told.stdout == "m_2 at payouts: skipped sequences 1 to 2; it is idle\n"
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([3, 5], [])
    world.write("m_2")
    world.drain()
    assert world.receiver.sequences("m_2") == [3]
    audited = world.db.execute(AUDIT).fetchall()
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


def test_advised_command_passes_only_the_lane_of_its_subject(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    odd = ("m  two", "m two", "m\ttab", "-x", "it's $(x)", "a" * 400, "whsec_abcdefgh")
    add_endpoint(db, receiver.url, state="disabled")
    for name in odd:
        decisions.write(name, name)
    drain(dsn)
    for name in odd:
        db.execute(LOSE, (name, 1, 1))
    db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    advised = []
    for name in odd:
        told = holdfast("why", "--json", "--", name, dsn=dsn, code=ExitCode.DEGRADED)
        [lane] = told.json["endpoints"]
        advised.append(lane["command"])
    script = "".join(f"{command}; echo;" for command in advised)
    taken = subprocess.run(
        ["/bin/bash", "-c", f"holdfast() {{ printf '%s\\0' \"$@\"; }}; {script}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in taken.split("\0\n")[:-1]:
        holdfast(*line.split("\0"), dsn=dsn, code=ExitCode.OK)
    assert [target for target, _, _ in db.execute(AUDIT)] == [f"subject {name}" for name in odd]
