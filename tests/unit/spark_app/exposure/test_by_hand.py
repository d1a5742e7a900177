"""Decisions by hand: what they make of a hold, and how they end."""

from holdfast.deploy.local.demo.reference import Hand
from holdfast.spark_app.exposure.codec import WITHOUT_HANDS, version_of
from tests.support.job.exposure import Group, at, row

OVER = 6_000_000
UNDER = 1_000_000


def _hand(number: int, when: str, *, block: bool, until: str | None = None) -> Hand:
    return Hand("m", number, block, at(when), None if until is None else at(until))


def _blocked(until: str | None = None) -> Group:
    """Held by hand since 12:05, with a window within the limit behind it."""
    group = Group().batch("12:00", row("a", "12:01", UNDER))
    return group.batch("12:00", by_hand=[_hand(1, "12:05", block=True, until=until)])


def _released(until: str | None = None) -> Group:
    """Blocked by the window up to 12:15, and released by hand at 12:20."""
    group = Group().batch("12:00", row("a", "12:01", OVER))
    assert group.batch("12:15").decided == [("m", "block", "12:15", 1, OVER)]
    return group.batch("12:16", by_hand=[_hand(1, "12:20", block=False, until=until)])


def test_windows_go_on_under_a_block_by_hand_and_decide_nothing() -> None:
    group = _blocked()
    for end in ("12:15", "12:30", "12:45"):
        group.batch(end, row(f"after {end}", end, UNDER))
        assert group.emitted == [("m", end, 1, UNDER)]
        assert group.decided == []
        assert group.merchants == {"m": True}


def test_block_without_an_end_waits_for_nothing_but_a_release() -> None:
    group = _blocked().batch("12:40")
    assert (group.merchants, group.timer) == ({"m": True}, None)
    group.batch("12:41", by_hand=[_hand(2, "12:41", block=False)]).batch("13:30")
    assert (group.merchants, group.emitted) == ({}, [("m", "12:45", 1, 0)])


def test_first_window_at_the_end_of_a_block_decides_as_usual() -> None:
    group = _blocked(until="12:30").batch("12:15", row("b", "12:16", UNDER))
    assert group.decided == []
    assert group.batch("12:30").decided == [("m", "release", "12:30", 1, UNDER)]


def test_window_before_the_end_of_a_block_does_not_release() -> None:
    group = _blocked(until="12:31").batch("12:15", row("b", "12:16", UNDER))
    assert group.batch("12:30").decided == []
    # No event after that: the hold does not outlive its reason.
    assert group.timer == at("12:32")
    assert group.batch("12:45").decided == [("m", "release", "12:45", 1, 0)]


def test_window_over_the_limit_keeps_the_hold_at_the_end_of_a_block() -> None:
    group = _blocked(until="12:30").batch("12:15", row("b", "12:16", OVER)).batch("12:30")
    assert (group.decided, group.merchants) == ([], {"m": True})
    assert group.batch("12:45").decided == [("m", "release", "12:45", 1, 0)]


def test_released_merchant_is_not_blocked_until_a_window_within_the_limit() -> None:
    group = _released().batch("12:16", row("b", "12:21", OVER), row("c", "12:31", UNDER))
    assert group.batch("12:30").decided == []
    group.batch("12:45", row("d", "12:46", OVER))
    assert (group.emitted, group.decided) == ([("m", "12:45", 1, UNDER)], [])
    assert group.batch("13:00").decided == [("m", "block", "13:00", 1, OVER)]


def test_window_at_the_end_of_a_release_may_block() -> None:
    group = _released(until="12:30").batch("12:16", row("b", "12:21", OVER))
    assert group.batch("12:30").decided == [("m", "block", "12:30", 1, OVER)]


def test_window_that_ended_before_a_release_does_not_end_it() -> None:
    group = Group().batch("12:00", row("a", "12:01", UNDER), row("b", "12:16", OVER))
    group.batch("12:15", by_hand=[_hand(1, "12:15", block=False)])
    assert group.batch("12:30").decided == []


def test_release_does_not_outlive_its_reason_without_traffic() -> None:
    group = _released()
    assert group.batch("12:30").emitted == [("m", "12:30", 1, 0)]
    group.batch("12:31", row("b", "12:32", OVER))
    assert group.batch("12:45").decided == [("m", "block", "12:45", 1, OVER)]


def test_of_two_decisions_by_hand_the_higher_number_counts() -> None:
    both = [_hand(3, "12:05", block=True), _hand(2, "12:06", block=False)]
    group = Group().batch("12:00", by_hand=both)
    assert group.merchants == {"m": True}
    assert group.batch("12:01", by_hand=[_hand(1, "12:07", block=False)]).merchants == {"m": True}


def test_window_that_was_forgotten_is_not_closed_again() -> None:
    group = Group().batch("12:00", row("a", "12:21", UNDER)).batch("12:50")
    assert (group.emitted, group.merchants) == ([("m", "12:30", 1, UNDER)], {})
    # Decided before that window ended, and learned when nobody remembers it.
    group.batch("12:50", by_hand=[_hand(1, "12:25", block=False)])
    assert (group.emitted, group.timer) == ([], at("13:00"))


def test_state_is_as_the_version_before_reads_it_unless_a_hand_decided() -> None:
    assert version_of(Group().batch("12:00", row("a", "12:01", 1)).state.merchants) == WITHOUT_HANDS
    assert version_of(_blocked().state.merchants) > WITHOUT_HANDS
