"""m_482: $85,000 blocks, $22,000 releases, whatever was killed and however often."""

import pytest

from tests.support.job.exposure import Group, at, row
from tests.support.job.stored_state import Kept

E917 = row("e917", "12:16", 1_500_000, "m_482")
E918 = row("e918", "12:19", 2_000_000, "m_482")
E919 = row("e919", "12:22", 500_000, "m_482")
E920 = row("e920", "12:24", -1_800_000, "m_482")


@pytest.fixture
def blocked() -> Group:
    """The world before e920: blocked at 12:15, and the next window open at $40,000."""
    group = Group()
    group.batch(None, row("e900", "12:05", 8_500_000, "m_482"))
    group.batch("12:16", E917, E918, E919)
    assert group.emitted == [("m_482", "12:15", 1, 8_500_000)]
    assert group.decided == [("m_482", "block", "12:15", 1, 8_500_000)]
    group.batch("12:21:30")
    assert group.windows == [("m_482", "12:30", 0, 4_000_000)]
    assert group.ids == ["e917", "e918", "e919"]
    return group


def test_timers_emit_at_the_end_and_forget_at_the_cutoff(blocked: Group) -> None:
    assert blocked.timer == at("12:30")
    blocked.batch("12:30")
    assert blocked.timer == at("12:32")


@pytest.mark.parametrize("sees_e920_again", [True, False])
def test_release_comes_once_in_either_world(blocked: Group, sees_e920_again: bool) -> None:
    kept = Kept()
    kept.save(blocked.state, blocked.state.absorbed)
    blocked.batch("12:22", E920)
    if not sees_e920_again:
        kept.save(blocked.state, blocked.output.absorbed)

    blocked.state = kept.load()
    blocked.batch("12:22", *([E920] if sees_e920_again else []))
    blocked.batch("12:30")

    assert blocked.emitted == [("m_482", "12:30", 1, 2_200_000)]
    assert blocked.decided == [("m_482", "release", "12:30", 1, 2_200_000)]
    assert blocked.batch("12:30").decided == []
    assert blocked.batch("13:00").decided == []
    assert blocked.merchants == {}


def test_replayed_e920_is_a_duplicate_in_the_world_that_has_it(blocked: Group) -> None:
    blocked.batch("12:22", E920)
    blocked.batch("12:22", E920)
    assert blocked.refused == [("duplicate", "e920")]
    assert blocked.windows == [("m_482", "12:30", 0, 2_200_000)]
