"""How far a lease may be trusted.

The database ends a lease by its clock. A process can only stop earlier: it measures from before the
claim was sent, and sends nothing that might still be running when the lease ends.
"""

SETTLE_SECONDS = 1.0
"""What is kept back for settling after the last possible answer."""

ROOM_SECONDS = 5.0
"""How much longer than the longest attempt a lease is by default."""

LEASE_SECONDS_DEFAULT = 35.0
"""The lease while there is no endpoint to take it from."""


def lease_seconds_for(attempts_seconds: list[float]) -> float:
    """Return the lease that gives every endpoint's attempt room: the longest attempt and 5 s."""
    if not attempts_seconds:
        return LEASE_SECONDS_DEFAULT
    return max(attempts_seconds) + ROOM_SECONDS


def fits(lease_seconds: float, attempt_seconds: float) -> bool:
    """Return whether an attempt that takes as long as it may fits into a lease at all."""
    return lease_seconds > attempt_seconds + SETTLE_SECONDS


def may_send(now: float, trusted_until: float, total_timeout: float) -> bool:
    """Return whether an attempt started at `now` ends, and is settled, within the lease."""
    return now + total_timeout + SETTLE_SECONDS <= trusted_until
