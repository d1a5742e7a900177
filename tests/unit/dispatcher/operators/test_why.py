"""Where an entry stands, what it waits for, and what its dead letter holds up."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.dispatcher.cli.output import counted
from holdfast.dispatcher.operators.common.text import between
from holdfast.dispatcher.operators.dead_letters.rules import WAITING_MAX, what_helps, what_it_holds
from holdfast.dispatcher.operators.entries.rules import (
    PATIENCE_SECONDS,
    SKIPPED_MAX,
    BatchCursor,
    Stage,
    Standing,
    standing,
)
from holdfast.dispatcher.operators.why.lock_holders import row_holder, snapshot_holder
from holdfast.dispatcher.operators.why.rules import (
    AT_REST,
    NEEDS_A_PERSON,
    Conditions,
    ExplainedEntry,
    LaneHead,
    Verdict,
    judge,
)
from tests.support.documents.pages import ROOT

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
KEY = "hf_" + "0" * 32
SECOND = timedelta(seconds=1)
BATCH = {
    "stream": "payouts",
    "batch_id": 7,
    "written_at": NOW - 10 * SECOND,
    "routed_at": NOW - 9 * SECOND,
    "xmax": "0",
}
HELD = {"since": NOW, "until": None, "by": "ada", "reason": "disputed"}
ENTRY = ExplainedEntry(KEY, "m_482", 3, "payout_hold.block", NOW - 10 * SECOND, BATCH)
ROW: dict[str, Any] = {
    "endpoint": "payouts",
    "endpoint_state": "active",
    "state_reason": None,
    "acted_by": None,
    "acted_at": None,
    "types": [],
    "streams": [],
    "stream": "payouts",
    "takes_stream": True,
    "starts_at": None,
    "before_start": None,
    "added_at": NOW - 3600 * SECOND,
    "changed_at": NOW - 3600 * SECOND,
    "order_policy": "stop",
    "rate_per_second": None,
    "paid_until": NOW,
    "secret_refs": ["env:S"],
    "ca_ref": None,
    "client_cert_ref": None,
    "client_key_ref": None,
    "breaker": "closed",
    "breaker_until": None,
    "breaker_reason": None,
    "held_until": None,
    "on_hold": None,
    "cancelled": None,
    "held_by": None,
    "lane_delivered_sequence": 2,
    "last_sequence": 5,
    "lane_attempt": 0,
    "due_at": NOW - SECOND,
    "lease_until": None,
    "head_sequence": 3,
    "dead_letter": None,
    "lane_stopped": False,
    "resolution": None,
    "attempts": 0,
    "last_outcome": None,
    "delivered_number": None,
    "due_before": 0,
    "leased_lanes": 0,
    "transactions": ["700"],
}
TRIED = {
    "attempts": 2,
    "lane_attempt": 2,
    "last_number": 2,
    "last_outcome": "failed",
    "last_status": 503,
    "last_error": None,
    "last_tried_at": NOW - 30 * SECOND,
}
DELIVERED = {
    "delivered_number": 2,
    "delivered_status": 200,
    "delivered_at": NOW,
    "receipt": {"outcome": "applied", "applied_at": "2026-11-02T11:59:59Z"},
}
DEAD = {
    "dead_letter": 4,
    "dead_reason": "rejected",
    "dead_detail": "answered 422",
    "dead_attempts": 1,
    "died_at": NOW,
    "due_at": None,
    "lane_stopped": True,
}
RESOLVED = {
    "lane_delivered_sequence": 3,
    "resolution": "dismissed",
    "resolved_letter": 4,
    "resolved_by": "ann",
    "resolved_at": NOW,
}
ALIVE = {
    "host": "web-1",
    "pid": 41,
    "in_flight": 3,
    "started_at": NOW - 60 * SECOND,
    "heartbeat_at": NOW,
    "draining": False,
    "alive": True,
}
GONE = {**ALIVE, "alive": False, "heartbeat_at": NOW - 300 * SECOND}
IDLE = {
    "pid": 99,
    "application_name": "psql",
    "state": "idle in transaction",
    "backend_xid": "700",
    "snapshot": False,
    "transaction_seconds": 90.0,
    "blocked_by": [],
    "query": "UPDATE holdfast.lane",
}
WAITING_FOR_IT = {
    **IDLE,
    "pid": 41,
    "application_name": "holdfast-dispatcher",
    "backend_xid": "701",
    "blocked_by": [99],
}
UNROUTED = {**BATCH, "routed_at": None}
OLD = {"written_at": NOW - 600 * SECOND, "routed_at": None}


def _conditions(*sessions: dict[str, Any], dispatcher: dict[str, Any] | None = ALIVE) -> Conditions:
    return Conditions(NOW, [dispatcher] if dispatcher else [], sessions)


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (DELIVERED, Verdict.DELIVERED, "by attempt 2 (HTTP 200); its receipt says applied at"),
        (DELIVERED | {"receipt": None}, Verdict.DELIVERED, "without a receipt"),
        (DEAD, Verdict.DEAD, "dead letter 4 since 2026-11-02T12:00:00Z: rejected after 1 attempt"),
        (DEAD, Verdict.DEAD, "its lane waits behind it"),
        (DEAD | {"lane_stopped": False, "order_policy": "skip"}, Verdict.DEAD, "lane continued"),
        (RESOLVED, Verdict.GIVEN_UP, "dismissed by ann"),
        ({"lane_delivered_sequence": 3}, Verdict.PASSED, "no delivery is on record"),
        (
            {"types": ["other"], "last_sequence": None, "lane_delivered_sequence": None},
            Verdict.NOT_TAKEN,
            "takes other, not payout_hold.block",
        ),
        (
            {"streams": ["orders"], "takes_stream": False, "last_sequence": None},
            Verdict.NOT_TAKEN,
            "takes orders, not stream payouts",
        ),
        ({"streams": ["payouts"], "lane_delivered_sequence": 1}, Verdict.DUE, ""),
        (
            {
                "starts_at": NOW,
                "before_start": True,
                "last_sequence": None,
                "lane_delivered_sequence": None,
            },
            Verdict.BEFORE_START,
            "added, at 2026-11-02T12:00:00Z",
        ),
        # Others go before it, and it will be passed over all the same.
        ({"types": ["other"], "head_sequence": 2}, Verdict.NOT_TAKEN, "takes other"),
        # It was tried, and then the endpoint was changed.
        (
            TRIED | {"types": ["other"], "head_sequence": None},
            Verdict.NOT_TAKEN,
            "tried 2 times, and no longer sent there: the endpoint takes other",
        ),
        (TRIED | {"types": ["other"], "head_sequence": 2}, Verdict.NOT_TAKEN, "takes other"),
        (TRIED | {"types": ["other"], "lane_delivered_sequence": 3}, Verdict.PASSED, "tried 2"),
        ({"last_sequence": 2, "added_at": NOW}, Verdict.NOT_BACKFILLED, "from the beginning"),
        ({"last_sequence": 2}, Verdict.LOST_ROUTE, "does not reach this entry"),
        ({"last_sequence": 2, "changed_at": NOW}, Verdict.NOT_TAKEN, "before the endpoint was"),
        ({"head_sequence": None}, Verdict.GAP, "sequence 3 of m_482 is not stored"),
        ({"lane_delivered_sequence": 1}, Verdict.GAP, "sequence 2 of m_482"),
        (
            {"lease_until": NOW + 7 * SECOND, "lane_attempt": 1},
            Verdict.SENDING,
            "(7 s left) by web-1 pid 41 (3 in flight, up for 1 min)",
        ),
        ({"lease_until": NOW - SECOND}, Verdict.LEASE_OVER, "ran out 1 s ago"),
        ({"due_at": None}, Verdict.STOPPED, "no dead letter is open"),
        (
            {
                "endpoint_state": "paused",
                "state_reason": "their deploy",
                "acted_by": "ann",
                "acted_at": NOW,
            },
            Verdict.PAUSED,
            "was paused by ann 2026-11-02T12:00:00Z (their deploy)",
        ),
        ({"endpoint_state": "disabled"}, Verdict.DISABLED, "was disabled by hand"),
        (
            {"on_hold": HELD, "due_at": NOW + 90 * SECOND},
            Verdict.ON_HOLD,
            "ada holds its subject at the endpoint since 2026-11-02T12:00:00Z (disputed)",
        ),
        (
            {"breaker": "open", "breaker_until": NOW + SECOND, "breaker_reason": "HTTP 500"},
            Verdict.BREAKER_OPEN,
            "open until 2026-11-02T12:00:01Z, after HTTP 500",
        ),
        ({"breaker": "half_open"}, Verdict.BREAKER_OPEN, "half open"),
        (
            {"held_until": NOW + SECOND, "held_by": "429"},
            Verdict.RECEIVER_ASKED,
            "asked for time (429): nothing is sent before",
        ),
        (
            TRIED | {"due_at": NOW + 90 * SECOND},
            Verdict.RETRY,
            "(in 1 min 30 s), after attempt 2 ended failed 2026-11-02T11:59:30Z (HTTP 503)",
        ),
        ({"held_until": NOW - SECOND}, Verdict.DUE, "due since"),
        ({"due_before": 1001}, Verdict.DUE, "more than 1000 lanes due before it"),
        ({"due_at": NOW - 600 * SECOND}, Verdict.NOT_CLAIMED, "cannot use env:S where it runs"),
        (
            {"due_at": NOW - 600 * SECOND, "not_allowed": "env:S is not allowed: ..."},
            Verdict.NOT_CLAIMED,
            "lanes due before it): env:S is not allowed",
        ),
        ({"due_at": NOW - 600 * SECOND, "leased_lanes": 1}, Verdict.DUE, "1 lane in flight"),
        (
            {"due_at": NOW - 600 * SECOND, "rate_per_second": 5},
            Verdict.DUE,
            "0 lanes due before it, and 0 lanes in flight, at 5 a second",
        ),
    ],
)
def test_facts_of_an_endpoint_have_one_answer(
    change: dict[str, Any], verdict: Verdict, words: str
) -> None:
    answer = judge(ROW | change, ENTRY, _conditions())
    assert (answer.verdict, answer.also) == (verdict, ())
    assert words in answer.sentence
    assert answer.needs_a_person == (verdict in NEEDS_A_PERSON)
    if answer.needs_a_person:
        assert answer.command


def test_what_is_over_needs_no_person() -> None:
    assert not NEEDS_A_PERSON & AT_REST


def test_every_verdict_is_documented_with_its_exit_code() -> None:
    page = (ROOT / "docs" / "operators" / "operations.md").read_text()
    section = page.partition("## What `holdfast why` says")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (\d) \|$", section, re.MULTILINE)
    codes = {Verdict.UNKNOWN: "3"} | dict.fromkeys(NEEDS_A_PERSON, "4")
    expected = {each: codes.get(each, "0") for each in Verdict if each is not Verdict.BEHIND}
    assert dict(rows) == expected


@pytest.mark.parametrize(
    ("batch", "conditions", "verdict", "words"),
    [
        (UNROUTED, _conditions(), Verdict.UNROUTED, "batch 7 of stream payouts waits"),
        (UNROUTED | OLD, _conditions(), Verdict.NOT_ROUTED, "(10 min)"),
        (UNROUTED, _conditions(dispatcher=None), Verdict.NO_DISPATCHER, "; no dispatcher runs"),
        (UNROUTED, _conditions(IDLE), Verdict.UNROUTED, "waits"),
        (UNROUTED | {"xmax": "700"}, _conditions(IDLE), Verdict.LOCKED, "; pid 99 (psql, idle in"),
        (
            UNROUTED,
            _conditions(IDLE, WAITING_FOR_IT),
            Verdict.LOCKED,
            "open for 1 min 30 s: UPDATE",
        ),
    ],
)
def test_batch_that_is_not_routed_waits_for_somebody(
    batch: dict[str, Any], conditions: Conditions, verdict: Verdict, words: str
) -> None:
    entry = ExplainedEntry(KEY, "m_482", 3, "payout_hold.block", batch["written_at"], batch)
    answer = judge(ROW | {"last_sequence": 2}, entry, conditions)
    assert answer.verdict is verdict
    assert words in answer.sentence


@pytest.mark.parametrize(
    ("conditions", "verdict", "words"),
    [
        (_conditions(dispatcher=None), Verdict.NO_DISPATCHER, "no dispatcher runs"),
        (_conditions(dispatcher=GONE), Verdict.NO_DISPATCHER, "web-1 pid 41, 5 min ago"),
        (_conditions(dispatcher=ALIVE | {"draining": True}), Verdict.NO_DISPATCHER, "draining"),
        (_conditions(IDLE), Verdict.LOCKED, "pid 99"),
        (_conditions(IDLE | {"transaction_seconds": 1.0}), Verdict.DUE, "due since"),
        (_conditions(IDLE | {"backend_xid": None}), Verdict.DUE, "due since"),
    ],
)
def test_due_waits_for_dispatcher_and_locks(
    conditions: Conditions, verdict: Verdict, words: str
) -> None:
    answer = judge(ROW, ENTRY, conditions)
    assert answer.verdict is verdict
    assert words in answer.sentence


def test_holder_of_a_row_is_named_with_the_command_to_end_it() -> None:
    answer = judge(ROW, ENTRY, _conditions(IDLE))
    assert answer.holder is not None
    assert answer.holder.pid == 99
    assert "pg_terminate_backend(99)" in (answer.command or "")
    assert row_holder([WAITING_FOR_IT], ["701"]) is None


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        ("m_482", "m_482"),
        ("m  two", "'m  two'"),
        ("m\ttab", r"$'m\x09tab'"),
        ("-x", "-- -x"),
        ("whsec_abcdefgh", "whsec_abcdefgh"),
        ("a" * 700, "a" * 700),
    ],
)
def test_advice_about_a_gap_names_its_subject_to_the_letter(subject: str, word: str) -> None:
    entry = ExplainedEntry(KEY, subject, 3, "payout_hold.block", NOW, BATCH)
    answer = judge(ROW | {"head_sequence": None}, entry, _conditions())
    assert answer.command == f"holdfast subject pass --endpoint payouts --reason TEXT {word}"


def test_old_snapshot_is_named_and_a_young_one_is_not() -> None:
    old = IDLE | {"snapshot": True, "transaction_seconds": 3600.0}
    holder = snapshot_holder([old, IDLE])
    assert holder is not None
    assert "open for 1 h" in str(holder)
    assert snapshot_holder([IDLE | {"snapshot": True}]) is None


def test_entry_behind_another_shows_the_answer_of_the_first() -> None:
    dead = judge(ROW | DEAD, ENTRY, _conditions())
    lane_head = LaneHead(KEY, 3, dead)
    behind = ExplainedEntry("hf_" + "1" * 32, "m_482", 4, "payout_hold.release", NOW, BATCH)
    answer = judge(ROW, behind, _conditions(), lane_head)
    assert (answer.verdict, answer.needs_a_person) == (Verdict.BEHIND, True)
    assert answer.command == f"holdfast redeliver {KEY} --endpoint payouts --reason TEXT"
    assert f"behind sequence 3 ({KEY})" in answer.sentence
    waits = judge(ROW, behind, _conditions(), LaneHead(KEY, 3, judge(ROW, ENTRY, _conditions())))
    assert (waits.verdict, waits.needs_a_person) == (Verdict.BEHIND, False)


def test_dead_letter_at_a_paused_endpoint_mentions_the_pause() -> None:
    row = ROW | DEAD
    assert judge(row, ENTRY, _conditions()).also == ()
    [paused] = judge(row | {"endpoint_state": "paused"}, ENTRY, _conditions()).also
    assert paused.startswith("the endpoint was paused")


def test_human_action_is_listed_before_other_causes() -> None:
    row = ROW | {"endpoint_state": "paused", "breaker": "open", "breaker_until": NOW + SECOND}
    answer = judge(row, ENTRY, _conditions(dispatcher=None))
    assert answer.verdict is Verdict.PAUSED
    assert answer.command == "holdfast endpoint resume payouts --reason TEXT"
    nobody, breaker = answer.also
    assert nobody == "no dispatcher runs"
    assert breaker.startswith("the endpoint's breaker is open")


def test_untrusted_text_in_a_sentence_has_no_controls() -> None:
    row = ROW | DEAD | {"dead_detail": "no\n\x1b[2Jentry"}
    sentence = judge(row, ENTRY, _conditions()).sentence
    assert "\x1b" not in sentence
    assert "\n" not in sentence


def test_times_between_steps_have_a_sign() -> None:
    assert between(NOW, NOW + 61 * SECOND) == "+1 min 1 s"
    assert between(NOW, NOW - 0.25 * SECOND) == "-250 ms"


def test_late_commit_is_awaited_as_long_as_it_is_possible() -> None:
    followed = BatchCursor(10)
    followed.see([11, 14], 0.0)
    assert (followed.after, followed.missing) == (14, [12, 13])
    followed.see([13], 1.0)
    assert (followed.after, followed.missing) == (14, [12])
    followed.see([], PATIENCE_SECONDS)
    assert followed.missing == []
    followed.see([1_000_000], 0.0)
    assert len(followed.missing) < SKIPPED_MAX
    assert followed.missing[-1] == 999_999


DUE: dict[str, Any] = {
    "endpoint_state": "active",
    "breaker": "closed",
    "breaker_until": None,
    "held_until": None,
    "on_hold": None,
    "delivered_sequence": 2,
    "last_sequence": 5,
    "due_at": NOW,
    "lease_until": None,
    "head_sequence": 3,
    "cancelled_at": None,
    "dead_reason": None,
    "died_at": None,
    "delivered_at": None,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Standing(Stage.DUE, until=NOW)),
        ({"lease_until": NOW}, Standing(Stage.SENDING, until=NOW)),
        ({"due_at": None}, Standing(Stage.STOPPED)),
        ({"delivered_sequence": 3, "head_sequence": None}, Standing(Stage.PASSED)),
        ({"delivered_sequence": 3, "delivered_at": NOW}, Standing(Stage.DELIVERED, until=NOW)),
        ({"dead_reason": "rejected", "died_at": NOW}, Standing(Stage.DEAD, until=NOW)),
        ({"cancelled_at": NOW}, Standing(Stage.CANCELLED, until=NOW)),
        ({"last_sequence": 2}, Standing(Stage.UNROUTED)),
        ({"last_sequence": None, "delivered_sequence": None}, Standing(Stage.UNROUTED)),
        (
            {"delivered_sequence": 0, "head_sequence": 1, "lease_until": NOW},
            Standing(Stage.BEHIND, behind=1),
        ),
        # Tried, and then the endpoint was changed to take its type no more.
        ({"delivered_sequence": 2, "head_sequence": None}, Standing(Stage.BEHIND)),
        (
            {"endpoint_state": "paused"},
            Standing(Stage.DUE, until=NOW, hold_reason="the endpoint is paused"),
        ),
        ({"breaker": "open"}, Standing(Stage.DUE, until=NOW, hold_reason="its breaker is open")),
        (
            {"held_until": NOW, "delivered_sequence": 0, "head_sequence": 1},
            Standing(Stage.BEHIND, behind=1, hold_reason="its receiver asked for time"),
        ),
    ],
)
def test_place_of_an_entry_follows_from_facts(change: dict[str, Any], expected: Standing) -> None:
    assert standing(DUE | change, 3) == expected


@pytest.mark.parametrize(
    ("noun", "plural"),
    [("row", "rows"), ("entry", "entries"), ("batch", "batches"), ("diverged replay", "replays")],
)
def test_noun_is_in_the_plural_unless_there_is_one(noun: str, plural: str) -> None:
    assert counted(1, noun) == f"1 {noun}"
    for count in (0, 2, 11):
        text = counted(count, noun)
        assert text.startswith(f"{count} ")
        assert text.endswith(plural)


DEAD_ROW: dict[str, Any] = {
    "id": 7,
    "key": "hf_1",
    "endpoint": "payouts",
    "reason": "exhausted",
    "resolution": None,
    "holds_lane": True,
    "waiting": 2,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "2 later entries"),
        ({"waiting": 1}, "1 later entry of this subject waits"),
        ({"waiting": 0}, "next decision"),
        ({"waiting": WAITING_MAX}, "1000 or more"),
        ({"holds_lane": False}, "continues without it"),
        ({"resolution": "dismissed"}, "resolved"),
    ],
)
def test_entries_waiting_behind_it_are_counted(change: dict[str, Any], message: str) -> None:
    assert message in what_it_holds(DEAD_ROW | change)


@pytest.mark.parametrize(
    ("change", "commands"),
    [
        ({}, ["redeliver", "reissue", "dead-letter"]),
        ({"reason": "rejected"}, ["redeliver", "reissue", "dead-letter"]),
        ({"reason": "refused"}, ["endpoint", "redeliver", "reissue", "dead-letter"]),
        ({"resolution": "reissued"}, []),
    ],
)
def test_open_letter_has_three_ways_out(change: dict[str, Any], commands: list[str]) -> None:
    assert [each.command.split()[1] for each in what_helps(DEAD_ROW | change)] == commands


def test_later_entries_are_released_only_if_it_holds_them() -> None:
    *_, holding = what_helps(DEAD_ROW)
    *_, beside = what_helps(DEAD_ROW | {"holds_lane": False})
    assert ("--skip" in holding.command, "continues" in holding.effect) == (True, True)
    assert ("--skip" in beside.command, "continues" in beside.effect) == (False, False)


def test_repetition_is_named_as_one_and_redelivery_as_safe() -> None:
    redeliver, reissue, _ = what_helps(DEAD_ROW)
    assert "safe" in redeliver.effect
    assert "REPEATED" in reissue.effect
