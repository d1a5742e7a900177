"""The demo: its traffic, the naive recomputation, the audit, and the sentence at the end."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.deploy.local.demo import generator, story
from holdfast.deploy.local.demo.recompute import (
    Action,
    Recomputed,
    Verdict,
    audit,
    expected,
    recompute,
)
from holdfast.deploy.local.demo.reference import BatchResult, Decision, Event, Reference
from holdfast.deploy.local.demo.report import Report
from holdfast.deploy.local.demo.report import verdict as report_verdict
from holdfast.deploy.local.demo.story import money

SEED = 482
EVENTS = 6000
NOW_US = 1_800_000_000_000_000
NOW = datetime(2026, 11, 28, 0, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traffic")
    generator.write_files(directory / "events", generator.traffic(SEED, EVENTS))
    (directory / "policy.toml").write_text(generator.policy_toml())
    return directory


@pytest.fixture(scope="module")
def recomputed(directory: Path) -> Recomputed:
    return recompute(directory / "events", directory / "policy.toml", NOW_US)


def clock(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%H:%M}"


def test_same_seed_gives_the_same_lines_and_another_seed_does_not() -> None:
    assert generator.traffic(SEED, EVENTS) == generator.traffic(SEED, EVENTS)
    assert generator.traffic(SEED, EVENTS) != generator.traffic(SEED + 1, EVENTS)


def test_traffic_may_open_so_that_it_ends_now() -> None:
    for now in (NOW, NOW + timedelta(minutes=14, seconds=59), NOW + timedelta(minutes=15)):
        opens = generator.opens_before(now)
        [*_, last] = generator.traffic(SEED, EVENTS, opens)
        assert timedelta() <= now - last.closed_at < generator.QUARTER
    moved = generator.traffic(SEED, EVENTS, opens)
    assert [len(each.lines) for each in moved] == [
        len(each.lines) for each in generator.traffic(SEED, EVENTS)
    ]


@pytest.mark.rest
def test_endless_traffic_is_of_now_and_its_ids_are_new() -> None:
    live = generator.Endless(SEED, EVENTS, NOW)
    ids: Counter[str] = Counter()
    young = 0
    for second in range(0, 7200, 10):
        now = NOW + timedelta(seconds=second)
        for line in live.until(now).lines:
            event = json.loads(line)
            age = now - datetime.fromisoformat(event["occurred_at"])
            assert age > timedelta()
            young += second > 0 and age < timedelta(minutes=1)
            ids[event["event_id"]] += 1
    assert EVENTS * 0.9 < ids.total() < EVENTS * 1.2
    assert young > 0.9 * EVENTS
    history = "".join(line for file in generator.traffic(SEED, EVENTS) for line in file.lines)
    assert not any(f'"{each}"' in history for each in ids)
    assert live.until(NOW + timedelta(days=1)).lines


def test_files_have_distinct_times_in_the_order_of_their_names(directory: Path) -> None:
    paths = generator.files_in_order(directory / "events")
    assert [path.name for path in paths] == sorted(path.name for path in paths)
    assert len({path.stat().st_mtime_ns // 1_000_000 for path in paths}) == len(paths) == 49
    assert sorted((directory / "events").iterdir()) == paths


def test_no_line_is_lost_between_the_generator_and_the_files(directory: Path) -> None:
    lines = [line for file in generator.traffic(SEED, EVENTS) for line in file.lines]
    written = "".join(path.read_text() for path in generator.files_in_order(directory / "events"))
    assert written.split("\n") == [*lines, ""]
    assert EVENTS * 0.95 < len(lines) < EVENTS * 1.15


def test_traffic_holds_every_kind_of_untidiness(recomputed: Recomputed) -> None:
    assert recomputed.unusable == 10
    assert recomputed.late("future_dated") == 3
    assert recomputed.late("late") >= 10
    assert recomputed.late("duplicate") >= 20
    revised = [
        window for batch in recomputed.batches for window in batch.windows if window.revision > 1
    ]
    assert revised


def test_many_merchants_are_held_and_every_hold_ends(recomputed: Recomputed) -> None:
    assert len(recomputed.decisions) >= 150
    assert any(decision.revision > 1 for decision in recomputed.decisions)
    balance = Counter(decision.merchant_id for decision in recomputed.decisions)
    assert len(balance) >= 40
    for merchant in balance:
        actions = [d.action for d in recomputed.decisions if d.merchant_id == merchant]
        assert actions == ["block", "release"] * (len(actions) // 2)


@pytest.mark.parametrize("seed", [SEED, 1, 2])
def test_m_482_tells_the_founding_example_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    generator.write_files(tmp_path / "events", generator.traffic(seed, generator.EVENTS_MIN))
    (tmp_path / "policy.toml").write_text(generator.policy_toml())
    reply = recompute(tmp_path / "events", tmp_path / "policy.toml", NOW_US)
    assert [
        (d.action, clock(d.window_end), d.exposure_minor, d.limit_minor)
        for d in reply.decisions
        if d.merchant_id == story.HERO
    ] == [("block", "12:15", 8_500_000, 5_000_000), ("release", "12:30", 2_200_000, 5_000_000)]


def test_silent_merchant_is_released_by_an_empty_window(recomputed: Recomputed) -> None:
    assert [
        (d.action, clock(d.window_end), d.exposure_minor)
        for d in recomputed.decisions
        if d.merchant_id == story.SILENT
    ] == [("block", "12:00", 6_300_000), ("release", "12:15", 0)]


def test_events_around_1230_are_those_of_the_story(directory: Path) -> None:
    lines = "".join(
        path.read_text() for path in generator.files_in_order(directory / "events")
    ).splitlines()
    window = {
        row["event_id"]: row["amount_minor"]
        for row in map(json.loads, (line for line in lines if '"m_482"' in line))
        if "2025-11-03T12:15" <= row["occurred_at"] < "2025-11-03T12:30"
    }
    assert window == {"e917": 1_500_000, "e918": 1_500_000, "e919": 1_000_000, "e920": -1_800_000}


POLICY = """
version = "2025-11-01"
[[default]]
limit_minor = 5_000_000
release_level_minor = 5_000_000
[[merchant]]
id = "m_small"
currency = "EUR"
limit_minor = 100
release_level_minor = 40
[[merchant]]
id = "m_small"
limit_minor = 1000
release_level_minor = 0
effective_from = 2025-11-03T13:00:00Z
"""


def at(clock: str) -> int:
    moment = datetime.fromisoformat(f"2025-11-03T{clock}+00:00").astimezone(UTC)
    return round(moment.timestamp()) * 1_000_000


def event(event_id: str, clock: str, amount: int, merchant: str = "m_482") -> Event:
    return Event(event_id, merchant, "charge", amount, "USD", at(clock))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def reference(policy: Path) -> Reference:
    return Reference(policy)


def published(result: BatchResult) -> list[tuple[int, int, int]]:
    return [(w.window_end, w.revision, w.exposure_minor) for w in result.windows]


def decided(result: BatchResult) -> list[tuple[str, int, int, int]]:
    return [(d.action, d.window_end, d.ordinal, d.exposure_minor) for d in result.decisions]


def test_founding_example_blocks_at_85000_and_releases_at_22000(reference: Reference) -> None:
    opening = [event("e911", "12:03:00", 6_000_000), event("e912", "12:09:00", 2_500_000)]
    assert reference.batch(opening, None) == BatchResult([], [], [])

    absorbed = [
        event("e917", "12:16:00", 1_500_000),
        event("e918", "12:18:30", 1_500_000),
        event("e919", "12:21:00", 1_000_000),
    ]
    blocked = reference.batch(absorbed, at("12:15:00"))
    assert published(blocked) == [(at("12:15:00"), 1, 8_500_000)]
    assert decided(blocked) == [("block", at("12:15:00"), 1, 8_500_000)]

    payout = event("e920", "12:28:00", -1_800_000)._replace(type="payout_submitted")
    assert reference.batch([payout], at("12:29:59")) == BatchResult([], [], [])

    released = reference.batch([], at("12:30:00"))
    assert published(released) == [(at("12:30:00"), 1, 2_200_000)]
    assert decided(released) == [("release", at("12:30:00"), 1, 2_200_000)]
    assert reference.batch([], at("14:00:00")) == BatchResult([], [], [])


def test_rows_of_a_batch_may_come_in_any_order(policy: Path) -> None:
    rows = [event(f"e{n}", f"12:{n % 40:02}:00", n * 300_000, f"m_{n % 3}") for n in range(60)]
    forward, backward = Reference(policy), Reference(policy)
    assert forward.batch(rows, None) == backward.batch(rows[::-1], None)
    end = at("14:00:00")
    assert forward.batch([], end) == backward.batch([], end)


QUARTER_US = 15 * 60 * 1_000_000
NOON_US = 1_762_171_200_000_000


def decision(merchant: str, action: str, quarter: int, ordinal: int = 1) -> Decision:
    start = NOON_US + quarter * QUARTER_US
    return Decision(
        merchant, action, start, start + QUARTER_US, 1, ordinal, 8_500_000, 5, 5, "USD", "v1"
    )


SHOULD = expected(
    [
        decision("m_1", "block", 0),
        decision("m_2", "block", 0),
        decision("m_1", "release", 1),
        decision("m_2", "release", 2),
    ]
)


def verdict(applied: list[Action]) -> tuple[int, int, int, int]:
    report = audit(SHOULD, applied)
    return report.lost, report.repeated, report.out_of_order, report.altered


def test_key_and_window_derive_only_from_the_decision() -> None:
    # hf_ and the first 128 bits of SHA-256 over
    # ["payout-hold/v1","m_1","2025-11-03T12:15:00Z","block","1"], computed with sha256sum
    assert SHOULD[0] == Action(
        "hf_cffb8043629a61bf75d15fc48d743b3d", "m_1", "block", "2025-11-03T12:15:00Z", 8_500_000
    )


def test_same_actions_in_each_merchants_order_are_a_kept_promise() -> None:
    # The merchants may be interleaved in any way.
    applied = [SHOULD[1], SHOULD[0], SHOULD[3], SHOULD[2]]
    assert audit(SHOULD, applied) == Verdict(4, 0, 0, 0, 0)
    assert audit(SHOULD, applied).kept


def test_planted_loss_is_found() -> None:
    assert verdict([SHOULD[0], SHOULD[1], SHOULD[2]]) == (1, 0, 0, 0)
    assert verdict([]) == (4, 0, 0, 0)


def test_planted_repeat_is_found() -> None:
    assert verdict([*SHOULD[:2], SHOULD[1], *SHOULD[2:]]) == (0, 1, 0, 0)


def test_action_that_nobody_decided_counts_as_repeated() -> None:
    [unexpected] = expected([decision("m_1", "block", 0, ordinal=2)])
    assert verdict([*SHOULD, unexpected, unexpected]) == (0, 2, 0, 0)


def test_planted_inversion_is_found() -> None:
    assert verdict([SHOULD[2], SHOULD[0], SHOULD[1], SHOULD[3]]) == (0, 0, 1, 0)


def test_action_under_its_key_with_another_amount_is_found() -> None:
    altered = Action(
        SHOULD[0].key, SHOULD[0].merchant_id, SHOULD[0].action, SHOULD[0].window_end, 1
    )
    assert verdict([altered, *SHOULD[1:]]) == (0, 0, 0, 1)


KEPT = Report(
    events=30_000,
    decisions=200,
    entries=200,
    webhooks_sent=210,
    actions_applied=200,
    actions_lost=0,
    actions_repeated=0,
    actions_altered=0,
    out_of_order=0,
    duplicates_absorbed=10,
    unknown_outcomes=12,
    spark_kills=1,
    dispatcher_kills=1,
    quarantined=10,
    quarantined_expected=10,
    late=5,
    future_dated=3,
    duplicates_in_stream=40,
    held_at_the_end=0,
    seconds=60.0,
    story=(),
)


def test_success_is_reported_in_one_sentence() -> None:
    assert KEPT.kept
    assert "nothing lost, nothing repeated" in report_verdict(KEPT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions_lost": 2}, "2 lost"),
        ({"actions_repeated": 1}, "1 repeated"),
        ({"out_of_order": 3}, "3 out of order"),
        ({"actions_altered": 4}, "4 altered"),
        ({"quarantined": 8}, "2 quarantined or accepted by mistake"),
        ({"spark_kills": 0}, "Spark was not killed at the planned point"),
        ({"dispatcher_kills": 0}, "the dispatcher was not killed at the planned point"),
    ],
)
def test_each_breach_is_named_and_fails_the_run(change: dict[str, int], message: str) -> None:
    broken = replace(KEPT, **change)
    assert not broken.kept
    assert report_verdict(broken).endswith(f": {message}.")


def test_money_is_written_as_people_write_it() -> None:
    assert money(8_500_000) == "$85,000"
    assert money(-5, "EUR") == "-EUR 0.05"
