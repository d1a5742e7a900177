"""One subject on hold at one endpoint, with real dispatchers, operators and receivers."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.replays import ReplayRequest
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.operators.subjects.holding import Holding
from holdfast.dispatcher.operators.subjects.store import Held, SubjectFilter, Subjects
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.dispatcher.operators.why.store import Why
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.delivery import DELIVERED, applied, progress
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

LANE = "SELECT due_at, tried_since_us, on_hold_until FROM holdfast.lane"


def hold(world: World, subject: str = "m_1", until: datetime | None = None) -> Row:
    with Holding.connect(world.dsn) as store:
        return store.hold(subject, "payouts", until, "disputed")


def resume(world: World, subject: str = "m_1") -> Row:
    with Holding.connect(world.dsn) as store:
        return store.resume(subject, "payouts", "settled")


def seen(world: World, subject: str = "m_1") -> list[int]:
    return [each.sequence for each in world.receiver.seen if each.subject == subject]


def why(world: World, subject: str = "m_1") -> Any:
    with Why.connect(world.dsn) as store:
        return store.explain_subject(subject)


def needs(world: World) -> dict[str, Row]:
    with Overview.connect(world.dsn) as store:
        return {need["kind"]: need for need in store.needs()}


def held(world: World, state: Held) -> list[str]:
    with Subjects.connect(world.dsn) as store:
        return [row["name"] for row in store.subjects(SubjectFilter(held=state), limit=10)[0]]


def test_held_subject_waits_in_order_and_others_continue(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    assert hold(world)["in_flight"] is False
    world.write("m_1", "m_2", "m_1")
    world.write("m_1")
    world.drain()
    assert (seen(world), seen(world, "m_2")) == ([1], [1, 2])
    resume(world)
    world.drain()
    assert seen(world) == [1, 2, 3, 4]


def test_request_in_flight_ends_and_the_next_is_not_sent(world: World) -> None:
    world.add_endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _: gate
    world.write("m_1", "m_1", "m_1")
    with world.dispatching("--lease-seconds", "60") as process:
        process.until(lambda: seen(world) == [1])
        assert hold(world)["in_flight"] is True
        # The rest of its lease is kept back once the dispatcher has read the hold.
        process.send(signal.SIGHUP)
        process.says("reloaded")
        gate.open()
        process.until(lambda: world.lanes()["m_1"].delivered == 1)
        world.write("m_2")
        process.until(lambda: seen(world, "m_2") == [1])
        assert seen(world) == [1]
        resume(world)
        process.until(lambda: seen(world) == [1, 2, 3])


def test_schedule_and_budget_stand_still_during_a_hold(world: World) -> None:
    world.add_endpoint(schedule_seconds=[3600] * 3)
    world.receiver.script = lambda _: answer(500)
    world.write("m_1")
    world.drain()
    (due, tried, _), *_ = world.db.execute(LANE).fetchall()
    began = hold(world)["since"]
    assert world.value("SELECT due_at >= '9999-01-01' FROM holdfast.lane") is True
    again = hold(world, until=began + timedelta(days=2))
    assert (again["since"], again["before"]["until"]) == (began, None)
    (later, shifted, until), *_ = world.db.execute(LANE).fetchall()
    assert (later - due, shifted - tried) == (timedelta(days=2), 2 * 86_400 * 10**6)
    resume(world)
    (later, shifted, until), *_ = world.db.execute(LANE).fetchall()
    assert until is None
    assert timedelta(0) < later - due < timedelta(minutes=1)
    assert later - due == timedelta(microseconds=shifted - tried)


def test_attempt_that_fails_during_a_hold_is_retried_after_it(world: World) -> None:
    world.add_endpoint(total_timeout_ms=20_000, schedule_seconds=[0] * 3)
    gate = Gate(answer(500))
    world.receiver.script = lambda _: gate
    world.write("m_1")
    with world.dispatching("--lease-seconds", "60") as process:
        process.until(lambda: seen(world) == [1])
        hold(world)
        gate.open()
        process.until(lambda: [each.outcome for each in world.attempts()] == ["failed"])
        assert world.value("SELECT due_at >= on_hold_until FROM holdfast.lane") is True
        world.receiver.script = lambda _: answer(200)
        resume(world)
        process.until(lambda: seen(world) == [1, 1])


def test_hold_with_an_end_expires_by_itself(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    until = world.value("SELECT now() + interval '1.5 seconds'")
    hold(world, until=until)
    hold(world, "m_2")
    world.write("m_1", "m_2")
    with world.dispatching() as process:
        process.until(lambda: len(world.attempts()) == 3)
    assert world.value("SELECT max(finished_at) >= %s FROM holdfast.attempt", until) is True
    assert seen(world, "m_2") == [1]
    with raises_code("not_on_hold"):
        resume(world)
    assert held(world, Held.ON_HOLD) == ["m_2"]
    assert world.value("SELECT count(*) FROM holdfast.lane WHERE on_hold_until IS NOT NULL") == 1


def test_replay_of_a_held_subject_waits(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2", "m_1")
    world.drain()
    hold(world)
    id_ = applied(world.dsn, DELIVERED)
    world.drain()
    assert (seen(world), seen(world, "m_2")) == ([1, 2], [1, 1])
    assert progress(world.dsn, id_)["waiting"] == 2
    resume(world)
    world.drain()
    assert seen(world) == [1, 2, 1, 2]
    assert progress(world.dsn, id_)["state"] == "applied"


def test_replays_of_held_subjects_keep_no_other_replay_waiting(world: World) -> None:
    """A dispatcher looks at eight replays at once."""
    world.add_endpoint()
    held_ones = [f"m_{number}" for number in range(8)]
    world.write(*held_ones, "m_free")
    world.drain()
    for each in held_ones:
        hold(world, each)
        applied(world.dsn, replace(DELIVERED, subject=each))
    free = applied(world.dsn, replace(DELIVERED, subject="m_free"))
    world.drain()
    assert progress(world.dsn, free)["state"] == "applied"
    assert seen(world, "m_free") == [1, 1]
    assert seen(world, "m_0") == [1]


def test_hold_waits_for_a_claim_that_came_first(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    with world.dispatching(failpoints="D2=exit") as process:
        process.process.wait()
    world.expire_leases()
    with psycopg.connect(world.dsn) as claiming, ThreadPoolExecutor() as threads:
        claiming.execute("SELECT FROM holdfast.lane FOR NO KEY UPDATE")
        asked = threads.submit(hold, world)
        _blocked(world)
        claiming.commit()
        assert asked.result()["in_flight"] is True


def test_replay_claim_passes_over_a_subject_being_held(world: World) -> None:
    endpoint_id = world.add_endpoint()
    world.write("m_1")
    world.drain()
    applied(world.dsn, DELIVERED)
    request = ReplayRequest({endpoint_id: 8}, uuid4(), 60.0)
    with psycopg.connect(world.dsn) as holding:
        holding.execute(
            "UPDATE holdfast.lane SET on_hold_since = now(), on_hold_until = '9999-01-01',"
            " on_hold_by = 'a', on_hold_reason = 'b'"
        )
        assert asyncio.run(_replayed(world.dsn, request)) == 0
        holding.commit()
    assert asyncio.run(_replayed(world.dsn, request)) == 0
    resume(world)
    assert asyncio.run(_replayed(world.dsn, request)) == 1
    assert hold(world)["in_flight"] is True


async def _backlog(dsn: str) -> list[tuple[str, int, int]]:
    watch = Watch(dsn)
    await watch.open()
    try:
        endpoints = (await watch.backlog()).endpoints
    finally:
        await watch.close()
    return [(each.name, each.due_lanes, each.on_hold) for each in endpoints]


async def _replayed(dsn: str, request: ReplayRequest) -> int:
    store = PostgresStore(dsn)
    await store.open()
    try:
        return (await store.claim_replays(request, 0.0)).item_count
    finally:
        await store.close()


def _blocked(world: World) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    eventually(lambda: world.value(waits) > 0)


def test_answered_hold_sends_nothing_while_claims_race(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    with world.dispatching() as process:
        for turn in range(2, 12):
            world.write("m_1", "m_1")
            if hold(world)["in_flight"]:
                leased = "SELECT count(*) FROM holdfast.lane WHERE token IS NOT NULL"
                process.until(lambda query=leased: world.value(query) == 0)
            before = seen(world)
            world.write("m_1", "m_2")
            process.until(lambda count=turn: len(seen(world, "m_2")) == count)
            assert seen(world) == before
            resume(world)
        process.until(lambda: len(seen(world)) == 31)
    assert seen(world) == list(range(1, 32))


def test_two_operators_at_once_leave_one_hold_and_two_audit_rows(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda _: hold(world), range(2))
    assert first["since"] == second["since"]
    assert sorted(each["before"] is None for each in (first, second)) == [False, True]
    with ThreadPoolExecutor() as threads:
        ended = [threads.submit(resume, world) for _ in range(2)]
    assert sorted(each.exception() is None for each in ended) == [False, True]
    rows = world.db.execute("SELECT action FROM holdfast.operator_action ORDER BY id").fetchall()
    assert [action for (action,) in rows] == ["lane.hold", "lane.hold", "lane.resume"]


def test_held_subject_is_named_by_why_status_and_its_list(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    hold(world)
    hold(world, "m_2")
    assert why(world).at_endpoints[0].answer.also[0].startswith(f"{_me()} holds its subject")
    world.write("m_1")
    world.drain()
    (answered,) = why(world).at_endpoints
    assert answered.answer.verdict is Verdict.ON_HOLD
    assert answered.answer.command == (
        "holdfast subject resume --endpoint payouts --reason TEXT m_1"
    )
    assert held(world, Held.ON_HOLD) == held(world, Held.ANY) == ["m_1", "m_2"]
    assert held(world, Held.BEHIND) == held(world, Held.RETRYING) == []
    assert asyncio.run(_backlog(world.dsn)) == [("payouts", 0, 2)]
    with Overview.connect(world.dsn) as store:
        totals = store.totals()
    assert (totals["retrying_lanes"], totals["oldest_waiting_seconds"]) == (0, None)
    need = needs(world)["subjects_on_hold"]
    assert (need["count"], need["command"]) == (2, "holdfast subject list --held on_hold")
    shown = world.holdfast("subject", "show", "m_1", code=ExitCode.OK).stdout
    assert "on hold since" in shown
    assert "9999" not in shown


def _me() -> str:
    import getpass

    return getpass.getuser()


def test_hold_longer_than_a_key_window_is_warned_of(world: World) -> None:
    world.add_endpoint(schedule_seconds=[3600])
    world.receiver.script = lambda _: answer(500)
    world.write("m_1")
    world.drain()
    now = hold(world)["since"]
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds = 3600, key_window_seen_at = now()"
    )
    assert hold(world, until=now + timedelta(minutes=50))["warning"] is None
    assert "keeps keys for 1 h" in hold(world)["warning"]
    assert "becomes a dead letter" not in needs(world)["subjects_on_hold"]["sentence"]
    world.db.execute("UPDATE holdfast.lane SET on_hold_since = now() - interval '2 hours'")
    assert "becomes a dead letter" in needs(world)["subjects_on_hold"]["sentence"]
    assert "becomes a dead letter" in resume(world)["warning"]


def test_hold_that_an_older_dispatcher_ignores_in_replays_is_warned_of(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    world.db.execute("""
        INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, draining)
        VALUES (gen_random_uuid(), 'h', 7, '0.2.0', false)
    """)
    assert "h pid 7 runs an older version, whose replays" in hold(world)["warning"]
    register = """
        INSERT INTO holdfast.code_session (kind, name, revision, works_from)
        SELECT 'dispatcher', id::text, '0037', '0037' FROM holdfast.dispatcher_instance
    """
    world.db.execute(register)
    assert hold(world)["warning"] is None


def test_hold_is_refused_without_a_lane_or_with_a_past_end(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    with raises_code("unknown_lane"):
        hold(world, "m_3")
    past = world.value("SELECT now()")
    with raises_code("invalid_value"):
        hold(world, until=past)
    assert world.value("SELECT count(*) FROM holdfast.operator_action") == 0


def test_check_accepts_a_hold_that_is_audited_and_no_other(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    # As `endpoint add` would have done.
    world.db.execute(
        "INSERT INTO holdfast.operator_action (acted_at, actor, action, target, reason)"
        " SELECT created_at, 'a', 'endpoint.add', name, 'a test' FROM holdfast.endpoint"
    )
    hold(world)
    world.write("m_1")
    world.drain()
    world.holdfast("check", code=ExitCode.OK)
    world.db.execute(
        "UPDATE holdfast.lane SET on_hold_since = now(), on_hold_until = '9999-01-01',"
        " on_hold_by = 'a', on_hold_reason = 'b' WHERE on_hold_until IS NULL"
    )
    checked = world.holdfast("check").stdout
    assert "unaudited" in checked
    assert "hold of subject m_2" in checked
    assert "m_1" not in checked


@pytest.mark.rest
def test_older_schema_delivers_and_replays_and_refuses_a_hold(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    hold(world)
    world.write("m_1")
    downgrade = ("db", "downgrade", "0036", "--reason", "a test", "--yes")
    refused = world.holdfast(*downgrade, code=ExitCode.FAILED)
    assert "1 subject is on hold" in refused.stderr
    world.drain()
    assert seen(world) == [1]
    resume(world)
    world.holdfast(*downgrade, code=ExitCode.OK)
    world.drain()
    applied(world.dsn, DELIVERED)
    world.drain()
    assert seen(world) == [1, 2, 1, 2]
    with raises_code("database_outdated"):
        hold(world)
    assert held(world, Held.ON_HOLD) == []
    assert asyncio.run(_backlog(world.dsn)) == [("payouts", 0, 0)]
    assert "subjects_on_hold" not in needs(world)
