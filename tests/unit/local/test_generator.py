"""The traffic of the demo: the same for the same seed, and as untidy as it claims to be."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.deploy.local.demo import files, generator, story
from holdfast.deploy.local.demo.recompute import Recomputed, recompute

SEED = 482
EVENTS = 6000
NOW_US = 1_800_000_000_000_000
NOW = datetime(2026, 11, 28, 0, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traffic")
    files.write(directory / "events", generator.traffic(SEED, EVENTS))
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
    paths = files.in_order(directory / "events")
    assert [path.name for path in paths] == sorted(path.name for path in paths)
    assert len({path.stat().st_mtime_ns // 1_000_000 for path in paths}) == len(paths) == 49
    assert sorted((directory / "events").iterdir()) == paths


def test_no_line_is_lost_between_the_generator_and_the_files(directory: Path) -> None:
    lines = [line for file in generator.traffic(SEED, EVENTS) for line in file.lines]
    written = "".join(path.read_text() for path in files.in_order(directory / "events"))
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
    files.write(tmp_path / "events", generator.traffic(seed, generator.EVENTS_MIN))
    (tmp_path / "policy.toml").write_text(generator.policy_toml())
    told = recompute(tmp_path / "events", tmp_path / "policy.toml", NOW_US)
    assert [
        (d.action, clock(d.window_end), d.exposure_minor, d.limit_minor)
        for d in told.decisions
        if d.merchant_id == story.HERO
    ] == [
        ("block", "12:15", 8_500_000, 5_000_000),
        ("release", "12:30", 2_200_000, 5_000_000),
    ]


def test_merchant_that_falls_silent_is_released_by_an_empty_window(recomputed: Recomputed) -> None:
    assert [
        (d.action, clock(d.window_end), d.exposure_minor)
        for d in recomputed.decisions
        if d.merchant_id == story.SILENT
    ] == [("block", "12:00", 6_300_000), ("release", "12:15", 0)]


def test_events_around_1230_are_those_of_the_story(directory: Path) -> None:
    lines = "".join(path.read_text() for path in files.in_order(directory / "events")).splitlines()
    window = {
        row["event_id"]: row["amount_minor"]
        for row in map(json.loads, (line for line in lines if '"m_482"' in line))
        if "2025-11-03T12:15" <= row["occurred_at"] < "2025-11-03T12:30"
    }
    assert window == {"e917": 1_500_000, "e918": 1_500_000, "e919": 1_000_000, "e920": -1_800_000}
