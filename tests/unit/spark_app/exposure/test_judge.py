"""Holds: when they begin, when they end, and what closes while they last."""

from tests.support.job.exposure import Group, row

HYSTERESIS = """
version = "v1"
[[default]]
limit_minor = 100
release_level_minor = 40
"""


def held(exposure: int = 101, **settings: int) -> Group:
    """A merchant that was blocked at 12:15."""
    group = Group(HYSTERESIS, **settings).batch(None, row("first", "12:00", exposure))
    group.batch("12:15")
    assert group.decided == [("m", "block", "12:15", 1, exposure)]
    return group


def test_exposure_above_the_limit_blocks_and_at_the_limit_does_not() -> None:
    group = Group(HYSTERESIS).batch(None, row("a", "12:00", 101, "x"), row("b", "12:00", 100, "y"))
    group.batch("12:15")
    assert group.decided == [("x", "block", "12:15", 1, 101)]
    assert group.merchants == {"x": True, "y": False}


def test_hold_ends_at_the_release_level_and_not_above_it() -> None:
    group = held().batch("12:15", row("a", "12:16", 41), row("b", "12:31", 40))
    assert group.batch("12:30").decided == []
    assert group.batch("12:45").decided == [("m", "release", "12:45", 1, 40)]


def test_merchant_that_is_held_is_not_blocked_again() -> None:
    group = held().batch("12:15", row("a", "12:16", 500))
    assert group.batch("12:30").decided == []
    assert group.merchants == {"m": True}


def test_merchant_that_is_not_held_is_not_released() -> None:
    group = Group(HYSTERESIS).batch(None, row("a", "12:00", 1))
    assert group.batch("12:15").decided == []


def test_hold_closes_the_next_window_without_any_event() -> None:
    group = held().batch("12:30")
    assert group.emitted == [("m", "12:30", 1, 0)]
    assert group.decided == [("m", "release", "12:30", 1, 0)]
    assert group.batch("13:30").emitted == []
    assert group.merchants == {}


def test_empty_window_is_revisable_until_its_cutoff() -> None:
    group = held().batch("12:30")
    group.batch("12:31", row("a", "12:20", 300))
    assert group.emitted == [("m", "12:30", 2, 300)]
    assert group.decided == [("m", "block", "12:30", 1, 300)]
    group.batch("12:31", row("b", "12:20", -300))
    assert group.decided == [("m", "release", "12:30", 2, 0)]


def test_empty_window_past_its_own_cutoff_is_emitted_and_forgotten() -> None:
    group = held().batch("20:00")
    assert group.emitted == [("m", "12:30", 1, 0)]
    assert group.decided == [("m", "release", "12:30", 1, 0)]
    assert (group.windows, group.merchants) == ([], {})


def test_empty_window_comes_between_the_windows_that_exist() -> None:
    group = Group(HYSTERESIS).batch(
        None, row("a", "12:00", 200), row("b", "12:40", 300), row("c", "12:50", 50)
    )
    group.batch("13:15")
    assert group.emitted == [
        ("m", "12:15", 1, 200),
        ("m", "12:30", 1, 0),
        ("m", "12:45", 1, 300),
        ("m", "13:00", 1, 50),
        ("m", "13:15", 1, 0),
    ]
    assert group.decided == [
        ("m", "block", "12:15", 1, 200),
        ("m", "release", "12:30", 1, 0),
        ("m", "block", "12:45", 1, 300),
        ("m", "release", "13:15", 1, 0),
    ]


def test_hold_from_an_earlier_batch_closes_the_empty_window_before_a_later_one() -> None:
    group = held().batch("12:15", row("a", "12:31", 200))
    group.batch("12:45")
    assert group.emitted == [("m", "12:30", 1, 0), ("m", "12:45", 1, 200)]
    assert [d[:3] for d in group.decided] == [("m", "release", "12:30"), ("m", "block", "12:45")]


def test_no_empty_window_where_the_next_one_has_events() -> None:
    group = held().batch("12:15", row("a", "12:16", 60)).batch("12:30")
    assert group.emitted == [("m", "12:30", 1, 60)]
    assert group.merchants == {"m": True}


def test_correction_of_the_latest_window_decides_again_with_the_next_ordinal() -> None:
    group = held()
    assert group.batch("12:16", row("a", "12:01", -61)).decided == [
        ("m", "release", "12:15", 1, 40)
    ]
    assert group.batch("12:16", row("b", "12:01", 61)).decided == [("m", "block", "12:15", 2, 101)]
    assert group.batch("12:16", row("c", "12:01", -61)).decided == [
        ("m", "release", "12:15", 2, 40)
    ]
    assert group.emitted == [("m", "12:15", 4, 40)]


def test_correction_of_an_older_window_does_not_change_the_hold() -> None:
    group = held(late_cutoff_us=3_600_000_000)
    group.batch("12:15", row("a", "12:16", 60)).batch("12:30", row("b", "12:01", -101))
    assert group.emitted == [("m", "12:15", 2, 0), ("m", "12:30", 1, 60)]
    # 12:15 was the latest when its correction went out, so the hold ended there ...
    assert group.decided == [("m", "release", "12:15", 1, 0)]
    group.batch("12:30", row("c", "12:01", 900))
    # ... and now 12:30 is.
    assert group.emitted == [("m", "12:15", 3, 900)]
    assert group.decided == []


def test_empty_window_is_the_latest_so_the_one_before_decides_no_more() -> None:
    group = held(late_cutoff_us=3_600_000_000).batch("12:30")
    group.batch("12:31", row("a", "12:01", 900))
    assert group.emitted == [("m", "12:15", 2, 1001)]
    assert group.decided == []


def test_correction_that_ends_the_hold_leaves_no_empty_window() -> None:
    group = held(late_cutoff_us=3_600_000_000).batch("12:30", row("a", "12:01", -101))
    assert group.emitted == [("m", "12:15", 2, 0)]
    assert group.decided == [("m", "release", "12:15", 1, 0)]


def test_hold_is_remembered_after_its_window_is_forgotten() -> None:
    group = held().batch("12:17")
    assert group.windows == []
    assert group.merchants == {"m": True}
    assert group.batch("12:30").decided == [("m", "release", "12:30", 1, 0)]


def test_limits_are_those_in_force_at_the_window_end() -> None:
    policy = (
        HYSTERESIS
        + """
        [[merchant]]
        id = "m"
        limit_minor = 1000
        release_level_minor = 1000
        effective_from = 2026-11-02T12:30:00Z
    """
    )
    group = Group(policy).batch(None, row("a", "12:00", 200), row("b", "12:16", 200))
    group.batch("12:30")
    assert group.decided == [("m", "block", "12:15", 1, 200), ("m", "release", "12:30", 1, 200)]
    assert group.output.decisions["limit_minor"].to_pylist() == [100, 1000]


def test_thousands_of_windows_of_one_merchant_alternate_correctly() -> None:
    minutes = range(0, 24 * 60, 30)
    rows = [row(f"e{m}", f"{m // 60:02}:{m % 60:02}", 101) for m in minutes]
    group = Group(HYSTERESIS).batch(None, *rows).batch("24:00")
    assert len(group.emitted) == 2 * len(minutes)
    assert [d[1] for d in group.decided] == ["block", "release"] * len(minutes)
    assert {d[3] for d in group.decided} == {1}
    assert group.merchants == {"m": False}
