"""How far a lease is trusted."""

from holdfast.dispatcher.delivery.rules.lease import fits, lease_seconds_for, may_send


def test_lease_has_room_for_the_slowest_endpoint() -> None:
    assert lease_seconds_for([2.0, 30.0]) == 35
    assert lease_seconds_for([]) == 35
    assert fits(35, 30)
    assert not fits(31, 30)


def test_nothing_is_sent_that_could_outlive_its_lease() -> None:
    assert may_send(now=100, trusted_until=131, total_timeout=30)
    assert not may_send(now=100.5, trusted_until=131, total_timeout=30)
