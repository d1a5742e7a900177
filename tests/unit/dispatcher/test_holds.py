"""What was claimed before a hold was heard of."""

from uuid import UUID

from dispatcher.core.values import Lane
from dispatcher.holds import Holds


def lane(endpoint_id: int, claimed_at: float) -> Lane:
    return Lane(endpoint_id, 1, UUID(int=1), 0, (), 100.0, claimed_at=claimed_at)


def test_lanes_claimed_before_a_hold_are_not_begun_and_later_ones_are() -> None:
    holds = Holds(clock=lambda: 50.0)
    assert holds.allow(lane(1, 0.0))
    holds.found([1])
    assert not holds.allow(lane(1, 49.0))
    assert not holds.allow(lane(1, 50.0))
    assert holds.allow(lane(1, 50.1))
    assert holds.allow(lane(2, 49.0))
