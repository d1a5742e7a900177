"""How far a process may trust a lease.

The database ends a lease by its clock. A process must stop earlier: it measures from before the
claim was sent, and starts no request that could still be running when the lease ends.
"""

SETTLE_SECONDS = 1.0
"""Time reserved for settling after the last possible answer."""

ROOM_SECONDS = 5.0
"""By how much the default lease exceeds the longest attempt."""

LEASE_SECONDS_DEFAULT = 35.0
"""The lease while there is no endpoint to derive it from."""


def lease_seconds_for(attempts_seconds: list[float]) -> float:
    """Return a lease that fits every endpoint's attempt: the longest attempt plus 5 s."""
    if not attempts_seconds:
        return LEASE_SECONDS_DEFAULT
    return max(attempts_seconds) + ROOM_SECONDS


def fits(lease_seconds: float, attempt_seconds: float) -> bool:
    """Return whether an attempt of the longest possible time fits into a lease."""
    return lease_seconds > attempt_seconds + SETTLE_SECONDS


def may_send(now: float, trusted_until: float, total_timeout: float) -> bool:
    """Return whether an attempt that starts at `now` ends, and is settled, within the lease."""
    return now + total_timeout + SETTLE_SECONDS <= trusted_until
