"""The next moment at which a group has to be called although no row came."""

from tests.support.job.exposure import Group, at, row


def test_open_window_wakes_the_group_at_its_end_and_then_at_its_cutoff() -> None:
    group = Group().batch(None, row("a", "12:00", 5))
    assert group.timer == at("12:15")
    assert group.batch("12:15").timer == at("12:17")
    assert group.batch("12:17").timer is None


def test_hold_wakes_the_group_at_the_end_of_the_next_window() -> None:
    group = Group().batch(None, row("a", "12:00", 9_000_000)).batch("12:17")
    assert group.timer == at("12:30")
    assert group.batch("12:30").timer == at("12:32")


def test_earliest_of_all_merchants_counts() -> None:
    group = Group().batch(None, row("a", "12:20", 5), row("b", "12:00", 5, "other"))
    assert group.timer == at("12:15")


def test_group_without_memory_waits_for_nothing() -> None:
    assert Group().timer is None


def test_timer_is_after_the_watermark() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    group.watermark = at("12:16:59.999")
    assert group.timer == at("12:17")
    group.watermark = at("12:17")
    assert group.timer is None


def test_nothing_happens_before_the_timer() -> None:
    group = Group().batch(None, row("a", "12:00", 5)).batch("12:15")
    before = group.state
    group.batch("12:16:59.999")
    assert group.state is before
    assert group.emitted == []
