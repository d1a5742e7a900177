"""Plans of replays on a real database: what each entry needs, and when a plan is refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest

from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import ReplayKind
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.replaying import ALL, DELIVERED
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions

pytestmark = pytest.mark.rest


def test_plan_says_of_each_entry_what_a_replay_would_do(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[600] * 10)
    said = {"m_ok": 200, "m_dead": 400, "m_retry": 500}
    receiver.script = lambda seen: answer(said[seen.subject])
    decisions.write("m_ok", "m_dead", "m_dead", "m_retry", "m_retry")
    drain(dsn)
    with Replays.connect(dsn) as store:
        plan = store.plan(ALL, reason="plan")
        items = store.items(plan["id"], limit=10)
        again = store.plan(ALL, reason="plan", id_=plan["id"])

    counts = plan["counts"]
    assert counts["kinds"] == {
        ReplayKind.RELEASE: 1,
        ReplayKind.HASTEN: 1,
        ReplayKind.RESEND: 1,
        ReplayKind.NOTHING: 2,
    }
    assert counts["endpoints"] == {"payouts": counts["kinds"]}
    assert [(each["subject"], each["kind"]) for each in items] == [
        (each["subject"], kind) for each, kind in zip(items, _kinds_by_subject(items), strict=True)
    ]
    assert again == plan
    assert _actions(db) == ["replay.plan"]


def _kinds_by_subject(items: object) -> list[str]:
    kinds = {"m_ok": "resend", "m_dead": "release", "m_retry": "hasten"}
    return [kinds[each["subject"]] for each in items]  # type: ignore[attr-defined]


def test_plan_that_finds_nothing_and_an_empty_filter_are_refused(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, "http://127.0.0.1:1/")
    decisions.write("m_1")
    with Replays.connect(dsn) as store:
        with pytest.raises(CommandError, match="empty filter") as empty:
            store.plan(ReplayFilter(), reason="x")
        with pytest.raises(CommandError, match="no entry matches") as nothing:
            store.plan(ReplayFilter(subject="m_2"), reason="x")
        queued = store.plan(ReplayFilter(subject="m_1"), reason="x")
        with pytest.raises(CommandError, match="nothing to do"):
            store.apply(queued["id"])
    assert (empty.value.exit_code, nothing.value.exit_code) == (
        ExitCode.USAGE,
        ExitCode.NOTHING_MATCHED,
    )
    assert queued["counts"]["kinds"] == {"nothing": 1}


def test_every_part_of_a_filter_narrows_a_plan(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_2")
    decisions.write("m_1", type_="payout_hold.release")
    drain(dsn)
    keys = db.execute("SELECT key FROM holdfast.entry ORDER BY created_at, subject_id").fetchall()
    moments = db.execute("SELECT DISTINCT created_at FROM holdfast.entry ORDER BY 1").fetchall()
    filters = {
        ReplayFilter(subject="m_1"): 2,
        ReplayFilter(stream="test", first_batch=2, last_batch=2): 1,
        ReplayFilter(stream="test", last_batch=1): 2,
        ReplayFilter(since=moments[1][0]): 1,
        ReplayFilter(until=moments[1][0]): 2,
        ReplayFilter(types=("payout_hold.release",)): 1,
        ReplayFilter(keys=(keys[0][0],)): 1,
        ReplayFilter(endpoint="payouts", keys=(keys[0][0],), subject="m_1", stream="test"): 1,
        DELIVERED: 3,
    }
    with Replays.connect(dsn) as store:
        found = {each: store.plan(each, reason="x")["item_count"] for each in filters}
        limited = store.plan(DELIVERED, reason="x", limit=2)
    assert found == filters
    assert (limited["item_count"], limited["counts"]["beyond_limit"]) == (2, 1)


def test_plan_that_no_longer_matches_is_refused_and_a_live_delivery_is_no_change(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    decisions.write("m_ok")
    drain(dsn)
    with Replays.connect(dsn) as store:
        delivered = store.plan(DELIVERED, reason="x")
        everything = store.plan(ALL, reason="x")
        decisions.write("m_ok")
        drain(dsn)
        assert store.apply(delivered["id"])["state"] == "applying"
        decisions.write("m_dead")
        drain(dsn)
        with pytest.raises(CommandError, match="1 entries came and 1 went"):
            store.apply(everything["id"])
        store.cancel(everything["id"], "enough")
        for ended, state in ((everything, "cancelled"), (delivered, "applied")):
            with pytest.raises(CommandError, match=f"is {state}"):
                store.apply(ended["id"])
            with pytest.raises(CommandError, match=f"is {state}"):
                store.cancel(ended["id"], "again")
    assert _actions(db) == ["replay.plan", "replay.plan", "replay.apply", "replay.cancel"]


def test_what_another_replay_is_about_to_send_is_left_out_and_counted(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    first_at = db.execute("SELECT max(created_at) FROM holdfast.entry").fetchone()
    decisions.write("m_2")
    drain(dsn)
    assert first_at is not None
    with Replays.connect(dsn) as store:
        one = store.plan(ReplayFilter(subject="m_1"), reason="x")
        both = store.plan(DELIVERED, reason="x")
        assert [(each["id"], each["entries"]) for each in both["counts"]["overlaps"]] == [
            (str(one["id"]), 1)
        ]
        store.apply(one["id"])
        with pytest.raises(CommandError, match="1 are now in another replay"):
            store.apply(both["id"])
        rest = store.plan(DELIVERED, reason="x")
    assert rest["item_count"] == 1
    assert rest["counts"]["taken"] == 1
    assert rest["counts"]["kinds"] == {"nothing": 1, "resend": 1}


def test_two_operators_who_apply_the_same_entries_at_once_send_them_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_2")
    drain(dsn)

    def apply(id_: UUID) -> str:
        with Replays.connect(dsn) as store:
            try:
                return str(store.apply(id_)["state"])
            except CommandError as error:
                return str(error)

    with Replays.connect(dsn) as store:
        plans = [store.plan(DELIVERED, reason="x")["id"] for _ in range(4)]
    with ThreadPoolExecutor(4) as operators:
        said = sorted(operators.map(apply, plans))
    assert said[0] == "applying"
    assert all("2 are now in another replay" in each for each in said[1:])
    drain(dsn)
    assert len(receiver.seen) == 4


def test_keys_that_the_receiver_may_have_forgotten_are_counted_and_refused(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    drain(dsn)
    db.execute("UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()")
    with Replays.connect(dsn) as store:
        plan = store.plan(DELIVERED, reason="x")
        with pytest.raises(CommandError, match="longer ago than their receiver keeps keys"):
            store.apply(plan["id"])
        waived = store.plan(DELIVERED, reason="x", outside_window=True)
        assert store.apply(waived["id"])["state"] == "applying"
    assert plan["counts"]["outside_window"] == 1


def test_replay_is_found_by_eight_digits_of_its_id(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    drain(dsn)
    with Replays.connect(dsn) as store:
        plan = store.plan(DELIVERED, reason="x", rate=5)
        assert store.find(plan["id"].hex[:8]) == store.find(str(plan["id"])) == plan["id"]
        with pytest.raises(CommandError, match="no replay"):
            store.find("0" * 8)
        with pytest.raises(CommandError, match="is not the id"):
            store.find("payouts")
        assert [each["id"] for each in store.list(limit=5)] == [plan["id"]]
    assert plan["counts"]["drain_seconds"] == 0.2


def _actions(db: psycopg.Connection) -> list[str]:
    return [
        name for (name,) in db.execute("SELECT action FROM holdfast.operator_action ORDER BY id")
    ]


def test_batches_by_their_numbers_are_those_alone_when_a_checkpoint_began_anew(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    """The numbers begin again: between two batches of one number lie all others."""
    add_endpoint(db, receiver.url)
    for n in range(3):
        decisions.write(f"m_before_{n}")
    db.execute("UPDATE holdfast.stream SET query_id = NULL")
    with Decisions(dsn) as restarted:
        for n in range(3):
            restarted.write(f"m_after_{n}")
    drain(dsn)
    second = ReplayFilter(stream="test", first_batch=2, last_batch=2)
    every = {each for (each,) in db.execute("SELECT key FROM holdfast.entry")}
    wanted = (
        second,
        replace(second, keys=tuple(sorted(every))),
        replace(second, first_batch=3, last_batch=None),
    )
    with Replays.connect(dsn) as store:
        plans = [store.plan(each, reason="x")["id"] for each in wanted]
        found = [{item["subject"] for item in store.items(each, limit=9)} for each in plans]
    assert found == [
        {"m_before_1", "m_after_1"},
        {"m_before_1", "m_after_1"},
        {"m_before_2", "m_after_2"},
    ]
