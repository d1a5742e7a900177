"""Endpoints that were just found held, by their breaker or by Retry-After.

The database decides what may be claimed. This keeps what this process claimed before it heard of a
hold from being sent after it: such lanes are given back, and no attempt is counted.
"""

from collections.abc import Callable, Iterable

from dispatcher.clock import seconds
from dispatcher.core.values import Lane


class Holds:
    """When each endpoint was last found held."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        """`clock` is the one that claims are timed by."""
        self._clock = clock
        self._found_at: dict[int, float] = {}

    def found(self, endpoint_ids: Iterable[int]) -> None:
        """Take down that these endpoints are held now."""
        now = self._clock()
        self._found_at.update(dict.fromkeys(endpoint_ids, now))

    def allow(self, lane: Lane) -> bool:
        """Return whether `lane` was claimed after its endpoint was last found held."""
        return lane.claimed_at > self._found_at.get(lane.endpoint_id, -1.0)
