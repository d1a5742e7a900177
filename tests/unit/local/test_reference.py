"""The naive recomputation against numbers worked out by hand."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference

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


def test_event_id_counts_once_in_any_window_that_is_held(reference: Reference) -> None:
    first = event("e1", "12:01:00", 100)
    assert reference.batch([first, first], None).late[0].reason == "duplicate"
    moved = reference.batch([event("e1", "12:16:00", 999)], at("12:10:00"))
    assert [late.reason for late in moved.late] == ["duplicate"]
    assert published(reference.batch([], at("12:15:00"))) == [(at("12:15:00"), 1, 100)]


def test_duplicate_is_seen_until_its_window_is_forgotten_and_late_after(
    reference: Reference,
) -> None:
    reference.batch([event("e1", "12:01:00", 100)], None)
    seen = reference.batch([event("e1", "12:01:00", 100)], at("12:17:00"))
    assert [late.reason for late in seen.late] == ["duplicate"]
    forgotten = reference.batch([event("e1", "12:01:00", 100)], at("12:17:00"))
    assert [(late.reason, late.watermark) for late in forgotten.late] == [("late", at("12:17:00"))]


def test_correction_inside_the_cutoff_is_a_revision_and_one_on_it_is_late(
    reference: Reference,
) -> None:
    reference.batch([event("e1", "12:01:00", 6_000_000)], None)
    assert decided(reference.batch([], at("12:15:00"))) == [("block", at("12:15:00"), 1, 6_000_000)]
    down = reference.batch([event("e2", "12:14:00", -2_000_000)], at("12:16:00"))
    assert published(down) == [(at("12:15:00"), 2, 4_000_000)]
    assert decided(down) == [("release", at("12:15:00"), 1, 4_000_000)]
    up = reference.batch([event("e3", "12:14:00", 2_000_000)], at("12:16:59"))
    assert decided(up) == [("block", at("12:15:00"), 2, 6_000_000)]
    unchanged = reference.batch(
        [event("e4", "12:14:00", 5), event("e5", "12:14:00", -5)], at("12:16:59")
    )
    assert unchanged == BatchResult([], [], [])
    too_late = reference.batch([event("e6", "12:14:59", 1)], at("12:17:00"))
    assert [late.reason for late in too_late.late] == ["late"]


def test_held_merchant_without_traffic_is_released_by_an_empty_window(
    reference: Reference,
) -> None:
    reference.batch([event("e1", "12:01:00", 6_000_000)], None)
    jumped = reference.batch([], at("18:00:00"))
    assert published(jumped) == [(at("12:15:00"), 1, 6_000_000), (at("12:30:00"), 1, 0)]
    assert [action for action, *_ in decided(jumped)] == ["block", "release"]


def test_older_window_than_the_latest_is_published_and_not_judged(policy: Path) -> None:
    patient = Reference(policy, late_cutoff_us=40 * 60 * 1_000_000)
    patient.batch([event("e1", "12:01:00", 1), event("e2", "12:31:00", 1)], None)
    patient.batch([], at("12:45:00"))
    # 12:15 is revised and 12:30 appears for the first time; 12:45 was published before both.
    older = patient.batch(
        [event("e3", "12:02:00", 9_000_000), event("e4", "12:20:00", 9_000_000)], at("12:45:00")
    )
    assert published(older) == [(at("12:15:00"), 2, 9_000_001), (at("12:30:00"), 1, 9_000_000)]
    assert older.decisions == []


def test_future_dated_event_is_recorded_and_not_applied(reference: Reference) -> None:
    future = event("e1", "12:01:00", 9_000_000)._replace(future_dated=True)
    assert [late.reason for late in reference.batch([future], None).late] == ["future_dated"]
    assert reference.batch([], at("12:15:00")).windows == []


def test_policy_in_force_is_the_merchants_own_at_the_windows_end(reference: Reference) -> None:
    reference.batch([event("e1", "12:46:00", 500, "m_small")], None)
    before = reference.batch([event("e2", "12:50:00", 400, "m_small")], at("13:00:00"))
    assert before.decisions == []
    assert before.windows[0].currency == "EUR"
    assert before.windows[0].exposure_minor == 900
    corrected = reference.batch([event("e3", "12:59:00", 101, "m_small")], at("13:00:00"))
    assert [(d.action, d.limit_minor) for d in corrected.decisions] == [("block", 1000)]


def test_rows_of_a_batch_may_come_in_any_order(policy: Path) -> None:
    rows = [event(f"e{n}", f"12:{n % 40:02}:00", n * 300_000, f"m_{n % 3}") for n in range(60)]
    forward, backward = Reference(policy), Reference(policy)
    assert forward.batch(rows, None) == backward.batch(rows[::-1], None)
    end = at("14:00:00")
    assert forward.batch([], end) == backward.batch([], end)
