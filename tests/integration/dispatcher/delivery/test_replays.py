"""Replays on a real database and a real receiver: their plans, and how they are carried out."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from holdfast.dispatcher.delivery.store.replaying import REPLAYS
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import ReplayKind
from tests.support.dispatch.delivery import (
    ALL,
    DEAD,
    DELIVERED,
    WAITING,
    AttemptRow,
    applied,
    progress,
)
from tests.support.dispatch.dispatching import dispatching
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


SERVE = ("--lease-seconds", "10")
SLOW = ReplayFilter(endpoint="slow")


def test_replayed_entry_has_the_same_bytes_and_key(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2", "m_1")
    world.drain()
    first = {(each.subject, each.sequence): each for each in world.receiver.seen}
    before = world.lanes()
    id_ = applied(world.dsn, DELIVERED)
    world.drain()
    again = world.receiver.seen[3:]
    assert Counter((each.subject, each.sequence) for each in again) == Counter(first.keys())
    assert [each.sequence for each in again if each.subject == "m_1"] == [1, 2]
    for each in again:
        same = first[each.subject, each.sequence]
        assert (each.body, each.header("webhook-id")) == (same.body, same.header("webhook-id"))
    assert sorted(world.attempts()) == [
        AttemptRow(*who, number, "delivered")
        for who in (("m_1", 1), ("m_1", 2), ("m_2", 1))
        for number in (1, 2)
    ]
    assert progress(world.dsn, id_) == {
        "state": "applied",
        "items": 3,
        "settled": 3,
        "sent": 3,
        "delivered": 3,
    }
    assert world.lanes() == before


def test_released_dead_letter_frees_its_lane_with_a_full_schedule(world: World) -> None:
    world.add_endpoint(schedule_seconds=[0])
    world.receiver.script = lambda _: answer(500)
    world.write("m_1", "m_1")
    world.drain()
    assert [(each.number, each.outcome) for each in world.attempts()] == [
        (1, "failed"),
        (2, "failed"),
    ]
    id_ = applied(world.dsn, DEAD)
    world.drain()
    # Two further attempts: the schedule started anew. Then it is a dead letter again.
    assert [each.number for each in world.attempts()] == [1, 2, 3, 4]
    world.receiver.script = lambda _: answer(200)
    applied(world.dsn, DEAD)
    world.drain()
    assert world.attempts()[4:] == [
        AttemptRow("m_1", 1, 5, "delivered"),
        AttemptRow("m_1", 2, 1, "delivered"),
    ]
    assert progress(world.dsn, id_) == {"state": "applied", "items": 1, "settled": 1, "released": 1}
    resolved = world.db.execute("SELECT resolution::text, resolved_by FROM holdfast.dead_letter")
    assert {resolution for resolution, _ in resolved} == {"redelivered"}


def test_passed_dead_letter_is_sent_and_resolved(world: World) -> None:
    world.add_endpoint(world.receiver.url, order_policy="skip")
    world.receiver.script = lambda seen: answer(400 if seen.sequence == 1 else 200)
    world.write("m_1", "m_1")
    world.drain()
    refused = applied(world.dsn, DEAD)
    world.drain()
    assert progress(world.dsn, refused)["failed"] == 1
    with Replays.connect(world.dsn) as store:
        (item,) = store.items(refused, limit=5)
    assert (item["outcome"], item["detail"]) == ("rejected", "answered 400")
    world.receiver.script = lambda _: answer(200)
    applied(world.dsn, DEAD)
    world.drain()
    assert [each[2:] for each in world.attempts() if each.sequence == 1] == [
        (1, "rejected"),
        (2, "rejected"),
        (3, "delivered"),
    ]
    (letter,) = world.db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall()
    assert letter == ("redelivered",)


def test_retry_brought_forward_is_one_attempt(world: World) -> None:
    world.add_endpoint(schedule_seconds=[3600] * 3)
    world.receiver.script = lambda _: answer(500)
    world.write("m_1")
    world.drain()
    hurried = applied(world.dsn, WAITING)
    world.drain()
    assert world.attempts() == [
        AttemptRow("m_1", 1, 1, "failed"),
        AttemptRow("m_1", 1, 2, "failed"),
    ]
    # A retry that is due by itself and one that a person asks for are one attempt.
    world.db.execute("UPDATE holdfast.lane SET due_at = now()")
    applied(world.dsn, WAITING)
    world.receiver.script = lambda _: answer(200)
    world.drain()
    assert world.attempts()[2:] == [AttemptRow("m_1", 1, 3, "delivered")]
    assert len(world.receiver.seen) == 3
    assert progress(world.dsn, hurried) == {
        "state": "applied",
        "items": 1,
        "settled": 1,
        "hastened": 1,
    }


def test_item_is_settled_after_its_schedule(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[0, 0])
    world.write("m_1")
    world.drain()
    world.receiver.script = lambda _: answer(500, b"not today")
    id_ = applied(world.dsn, DELIVERED)
    world.drain()
    assert [each.number for each in world.attempts()] == [1, 2, 3, 4]
    with Replays.connect(world.dsn) as store:
        (item,) = store.items(id_, limit=5)
    assert (item["outcome"], item["attempt"]) == ("failed", 3)
    assert item["detail"] == "answered 500: not today"
    assert progress(world.dsn, id_)["state"] == "applied"
    assert world.db.execute("SELECT count(*) FROM holdfast.dead_letter").fetchone() == (0,)


def test_items_wait_for_pause_and_failed_ones(world: World) -> None:
    endpoint = world.add_endpoint(world.receiver.url, schedule_seconds=[3600])
    world.write("m_1", "m_1")
    world.drain()
    id_ = applied(world.dsn, DELIVERED)
    world.db.execute("UPDATE holdfast.endpoint SET state = 'paused' WHERE id = %s", [endpoint])
    world.drain()
    assert progress(world.dsn, id_) == {"state": "applying", "items": 2, "waiting": 2}
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active' WHERE id = %s", [endpoint])
    world.receiver.script = lambda _: answer(500)
    world.drain()
    assert progress(world.dsn, id_) == {
        "state": "applying",
        "items": 2,
        "waiting": 2,
        "retrying": 1,
    }
    assert [each.sequence for each in world.receiver.seen] == [1, 2, 1]


def test_live_decisions_overtake_a_paced_replay(world: World, tmp_path: Path) -> None:
    world.add_endpoint()
    world.write(*(f"m_{number}" for number in range(600)))
    world.drain()
    world.receiver.seen.clear()
    id_ = applied(world.dsn, DELIVERED, rate=200)
    with (
        dispatching(world.dsn, tmp_path / "one", *SERVE) as process,
        dispatching(world.dsn, tmp_path / "other", *SERVE),
    ):
        process.until(lambda: len(world.receiver.seen) >= 100)
        world.write("m_live")
        process.until(lambda: progress(world.dsn, id_)["state"] == "applied")
    place = [each.subject for each in world.receiver.seen].index("m_live")
    assert place < 400
    times = sorted(each.at for each in world.receiver.seen if each.subject != "m_live")
    assert len(times) == 600
    # In any second, the rate and the burst of a tenth of it; a request may take a moment longer.
    most = max(sum(at <= other < at + 1 for other in times) for at in times)
    assert 150 < most <= 250
    assert Counter(each.number for each in world.attempts()) == {1: 601, 2: 600}


def test_cancelled_replay_books_what_is_in_flight(world: World) -> None:
    world.add_endpoint(world.receiver.url, concurrency=2, total_timeout_ms=10_000)
    world.write("m_1", "m_2", "m_3")
    world.drain()
    gate = Gate(answer(200))
    world.receiver.script = lambda _: gate
    id_ = applied(world.dsn, DELIVERED)
    with world.dispatching("--lease-seconds", "20") as process:
        process.until(lambda: len(world.receiver.seen) == 4)
        with Replays.connect(world.dsn) as store:
            cancelled = store.cancel(id_, "a mistake")
        assert (cancelled["state"], cancelled["progress"]["in_flight"]) == ("cancelled", 1)
        gate.open()
        process.until(lambda: progress(world.dsn, id_).get("delivered") == 1)
        world.write("m_4")
        process.until(lambda: "m_4" in {each.subject for each in world.receiver.seen})
    assert progress(world.dsn, id_) == {
        "state": "cancelled",
        "items": 3,
        "settled": 1,
        "sent": 1,
        "delivered": 1,
        "waiting": 2,
    }
    assert len(world.receiver.seen) == 5


def test_replay_waits_for_an_open_breaker_and_its_probe_may_be_an_item(world: World) -> None:
    world.add_endpoint(breaker_threshold=2, slow_start_seconds=1)
    world.write("m_1", "m_2", "m_3")
    world.drain()
    world.receiver.script = lambda _: answer(500)
    id_ = applied(world.dsn, DELIVERED)
    world.drain()
    assert world.db.execute("SELECT breaker::text FROM holdfast.endpoint_pace").fetchone() == (
        "open",
    )
    assert progress(world.dsn, id_)["state"] == "applying"
    world.receiver.script = lambda _: answer(200)
    world.db.execute("UPDATE holdfast.endpoint_pace SET breaker_until = now()")
    world.drain()
    assert progress(world.dsn, id_)["delivered"] == 3
    numbers = {
        name: [each.number for each in world.attempts() if each.subject == name]
        for name in world.lanes()
    }
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())


def test_pruned_entry_has_a_settled_explanation(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    id_ = applied(world.dsn, DELIVERED)
    world.db.execute("DELETE FROM holdfast.entry")
    world.drain()
    with Replays.connect(world.dsn) as store:
        (item,) = store.items(id_, limit=5)
    assert (item["outcome"], item["detail"]) == (None, "not sent: its entry is no longer stored")
    assert progress(world.dsn, id_)["state"] == "applied"
    assert len(world.receiver.seen) == 1


def test_forgotten_key_is_sent_only_with_confirmation(world: World) -> None:
    world.add_endpoint()
    world.receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    world.write("m_ok", "m_dead")
    world.drain()
    careful = applied(world.dsn, DELIVERED)
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()"
    )
    world.drain()
    with Replays.connect(world.dsn) as store:
        (item,) = store.items(careful, limit=5)
    assert (item["outcome"], len(world.receiver.seen)) == ("refused", 2)
    assert "longer ago than the receiver keeps keys" in item["detail"]
    world.receiver.script = lambda _: answer(200)
    waived = applied(world.dsn, ALL, outside_window=True)
    world.drain()
    done = progress(world.dsn, waived)
    assert (done["released"], done["delivered"], len(world.receiver.seen)) == (1, 1, 4)
    (letter,) = world.db.execute("SELECT window_waived FROM holdfast.dead_letter").fetchall()
    assert letter == (True,)


def test_all_kinds_of_items_are_done_together(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[3600] * 3)
    statuses = {"m_ok": 200, "m_dead": 400, "m_retry": 500}
    world.receiver.script = lambda seen: answer(statuses[seen.subject])
    world.write(*statuses)
    world.drain()
    id_ = applied(world.dsn, ALL)
    world.receiver.script = lambda _: answer(200)
    world.drain()
    eventually(lambda: progress(world.dsn, id_)["state"] == "applied")
    assert progress(world.dsn, id_) == {
        "state": "applied",
        "items": 3,
        "settled": 3,
        "released": 1,
        "hastened": 1,
        "sent": 1,
        "delivered": 1,
    }
    assert sorted(world.attempts())[1::2] == [
        AttemptRow(name, 1, 2, "delivered") for name in ("m_dead", "m_ok", "m_retry")
    ]


def test_replays_that_wait_hold_up_no_later_one(world: World, receiver: WebhookReceiver) -> None:
    world.add_endpoint(f"{receiver.url}slow", schedule_seconds=[36_000] * 5, name="slow")
    world.add_endpoint(receiver.url)
    world.write(*(f"m_{n}" for n in range(REPLAYS + 1)))
    world.drain()
    receiver.script = lambda seen: answer(503 if seen.target.endswith("slow") else 200)
    slow = [applied(world.dsn, replace(SLOW, subject=f"m_{n}")) for n in range(REPLAYS)]
    world.drain()
    assert {progress(world.dsn, each)["retrying"] for each in slow} == {1}
    later = applied(world.dsn, replace(DELIVERED, subject=f"m_{REPLAYS}"))
    world.drain()
    assert progress(world.dsn, later) == {
        "state": "applied",
        "items": 1,
        "settled": 1,
        "sent": 1,
        "delivered": 1,
    }


@pytest.mark.parametrize("ended", ["applied", "cancelled"])
def test_replay_that_ended_is_not_applied_again(world: World, ended: str) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    id_ = applied(world.dsn, DELIVERED)
    with Replays.connect(world.dsn) as store:
        if ended == "cancelled":
            store.cancel(id_, "a mistake")
        world.drain()
        before = len(world.receiver.seen)
        with raises_code("replay_not_open"):
            store.apply(id_)
    world.drain()
    assert len(world.receiver.seen) == before


def test_tried_items_of_a_cancelled_replay_settle(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[36_000] * 5)
    world.write("m_1", "m_1")
    world.drain()
    world.receiver.script = lambda _: answer(503)
    id_ = applied(world.dsn, DELIVERED)
    world.drain()
    with Replays.connect(world.dsn) as store:
        store.cancel(id_, "enough")
    assert progress(world.dsn, id_) == {
        "state": "cancelled",
        "items": 2,
        "settled": 1,
        "sent": 1,
        "failed": 1,
        "waiting": 1,
    }


def test_plan_says_what_a_replay_would_do(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[600] * 10)
    statuses = {"m_ok": 200, "m_dead": 400, "m_retry": 500}
    world.receiver.script = lambda seen: answer(statuses[seen.subject])
    world.write("m_ok", "m_dead", "m_dead", "m_retry", "m_retry")
    world.drain()
    with Replays.connect(world.dsn) as store:
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
    assert _actions(world.db) == ["replay.plan"]


def _kinds_by_subject(items: object) -> list[str]:
    kinds = {"m_ok": "resend", "m_dead": "release", "m_retry": "hasten"}
    return [kinds[each["subject"]] for each in items]  # type: ignore[attr-defined]


def test_plan_holds_a_bounded_number_of_items(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.dispatcher.operators.replays.store.ITEMS_MAX", 1)
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()
    with Replays.connect(world.dsn) as store, raises_code("plan_too_large"):
        store.plan(DELIVERED, reason="a test")


def test_empty_plan_and_empty_filter_are_refused(world: World) -> None:
    world.add_endpoint("http://127.0.0.1:1/")
    world.write("m_1")
    with Replays.connect(world.dsn) as store:
        with raises_code("invalid_filter") as empty:
            store.plan(ReplayFilter(), reason="x")
        with raises_code("nothing_matched") as nothing:
            store.plan(ReplayFilter(subject="m_2"), reason="x")
        queued = store.plan(ReplayFilter(subject="m_1"), reason="x")
        with raises_code("nothing_to_replay"):
            store.apply(queued["id"])
    assert (empty.value.exit_code, nothing.value.exit_code) == (
        ExitCode.USAGE,
        ExitCode.NOTHING_MATCHED,
    )
    assert queued["counts"]["kinds"] == {"nothing": 1}


def test_every_part_of_a_filter_narrows_a_plan(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.write("m_1", type_="payout_hold.release")
    world.drain()
    keys = world.db.execute(
        "SELECT key FROM holdfast.entry ORDER BY created_at, subject_id"
    ).fetchall()
    moments = world.db.execute(
        "SELECT DISTINCT created_at FROM holdfast.entry ORDER BY 1"
    ).fetchall()
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
    with Replays.connect(world.dsn) as store:
        results = {each: store.plan(each, reason="x")["item_count"] for each in filters}
        limited = store.plan(DELIVERED, reason="x", limit=2)
    assert results == filters
    assert (limited["item_count"], limited["counts"]["beyond_limit"]) == (2, 1)


def test_outdated_plan_is_refused(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    world.receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    world.write("m_ok")
    world.drain()
    with Replays.connect(world.dsn) as store:
        delivered = store.plan(DELIVERED, reason="x")
        everything = store.plan(ALL, reason="x")
        world.write("m_ok")
        world.drain()
        assert store.apply(delivered["id"])["state"] == "applying"
        world.write("m_dead")
        world.drain()
        with pytest.raises(CommandError, match="1 entry came and 1 went"):
            store.apply(everything["id"])
        store.cancel(everything["id"], "enough")
        for ended, state in ((everything, "cancelled"), (delivered, "applied")):
            with pytest.raises(CommandError, match=f"is {state}"):
                store.apply(ended["id"])
            with pytest.raises(CommandError, match=f"is {state}"):
                store.cancel(ended["id"], "again")
    assert _actions(world.db) == ["replay.plan", "replay.plan", "replay.apply", "replay.cancel"]


def test_entries_of_another_replay_are_left_out_and_counted(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    first_at = world.db.execute("SELECT max(created_at) FROM holdfast.entry").fetchone()
    world.write("m_2")
    world.drain()
    assert first_at is not None
    with Replays.connect(world.dsn) as store:
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


def test_concurrent_applies_send_entries_once(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2")
    world.drain()

    def apply(id_: UUID) -> str:
        with Replays.connect(world.dsn) as store:
            try:
                return str(store.apply(id_)["state"])
            except CommandError as error:
                return str(error)

    with Replays.connect(world.dsn) as store:
        plans = [store.plan(DELIVERED, reason="x")["id"] for _ in range(4)]
    with ThreadPoolExecutor(4) as operators:
        codes = sorted(operators.map(apply, plans))
    assert codes[0] == "applying"
    assert all("2 are now in another replay" in each for each in codes[1:])
    world.drain()
    assert len(world.receiver.seen) == 4


def test_forgotten_keys_are_counted_and_refused(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()"
    )
    with Replays.connect(world.dsn) as store:
        plan = store.plan(DELIVERED, reason="x")
        with raises_code("outside_window"):
            store.apply(plan["id"])
        waived = store.plan(DELIVERED, reason="x", outside_window=True)
        assert store.apply(waived["id"])["state"] == "applying"
    assert plan["counts"]["outside_window"] == 1


def test_replay_is_found_by_eight_digits_of_its_id(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    with Replays.connect(world.dsn) as store:
        plan = store.plan(DELIVERED, reason="x", rate=5)
        assert store.find(plan["id"].hex[:8]) == store.find(str(plan["id"])) == plan["id"]
        with raises_code("unknown_id"):
            store.find("0" * 8)
        with raises_code("invalid_id"):
            store.find("payouts")
        assert [each["id"] for each in store.list(limit=5)] == [plan["id"]]
    assert plan["counts"]["drain_seconds"] == 0.2


def _actions(db: psycopg.Connection) -> list[str]:
    return [
        name for (name,) in db.execute("SELECT action FROM holdfast.operator_action ORDER BY id")
    ]


def test_batch_numbers_mean_one_checkpoint(world: World) -> None:
    """The numbers begin again: between two batches of one number lie all others."""
    world.add_endpoint()
    for n in range(3):
        world.write(f"m_before_{n}")
    world.db.execute("UPDATE holdfast.stream SET query_id = NULL")
    with Decisions(world.dsn) as restarted:
        for n in range(3):
            restarted.write(f"m_after_{n}")
    world.drain()
    second = ReplayFilter(stream="test", first_batch=2, last_batch=2)
    every = {each for (each,) in world.db.execute("SELECT key FROM holdfast.entry")}
    wanted = (
        second,
        replace(second, keys=tuple(sorted(every))),
        replace(second, first_batch=3, last_batch=None),
    )
    with Replays.connect(world.dsn) as store:
        plans = [store.plan(each, reason="x")["id"] for each in wanted]
        results = [{item["subject"] for item in store.items(each, limit=9)} for each in plans]
    assert results == [
        {"m_before_1", "m_after_1"},
        {"m_before_1", "m_after_1"},
        {"m_before_2", "m_after_2"},
    ]
