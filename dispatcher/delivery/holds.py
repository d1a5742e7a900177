"""Endpoints that are held, by their breaker or by Retry-After, as far as this process knows.

The database decides what may be claimed. This keeps what this process claimed before it heard of a
hold from being sent after it: such lanes are given back, and no attempt is counted. It also waits
for the database where results that are not stored yet will bring a hold about: storing them takes
some milliseconds or, while the database is away, as long as a lease lasts, and a receiver that is
down would get many times the failures that its breaker allows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dispatcher.delivery.rules.pace_results import failures_after
from dispatcher.delivery.rules.values import Lane, Settlement
from dispatcher.outbound.endpoint import Endpoint
from dispatcher.shared.clock import seconds
from sink.contract.states import Outcome


@dataclass(slots=True)
class _Untold:
    """What this process knows of one endpoint and the database may not."""

    failures: int = 0
    """In a row, also those that are stored."""
    unstored: int = 0
    """Results that did not end with a delivery and are not stored."""
    asked: bool = False
    """Whether one of them asked for time, or for nothing more at all (410), or our guard did."""
    threshold: int = 0

    def will_hold(self) -> bool:
        if not self.unstored:
            return False
        return self.asked or 0 < self.threshold <= self.failures


class Holds:
    """When each endpoint was last found held, and which ones are about to be."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        """`clock` is the one that claims are timed by."""
        self._clock = clock
        self._found_at: dict[int, float] = {}
        self._untold: dict[int, _Untold] = {}

    def found(self, endpoint_ids: Iterable[int]) -> None:
        """Take down that these endpoints are held now."""
        now = self._clock()
        self._found_at.update(dict.fromkeys(endpoint_ids, now))

    def tried(self, settlement: Settlement, endpoint: Endpoint) -> None:
        """Take down a result that is about to be stored; `stored` must follow."""
        if not self._untold and not _may_hold(settlement):
            return
        untold = self._untold.setdefault(endpoint.id, _Untold())
        for attempt in settlement.attempts:
            untold.failures = failures_after(untold.failures, attempt)
            untold.asked |= attempt.barred or attempt.put_off
        untold.asked |= settlement.disable is not None
        untold.threshold = endpoint.breaker_threshold
        untold.unstored += _may_hold(settlement)
        self._forget(endpoint.id, untold)

    def stored(self, settlement: Settlement) -> bool:
        """Take down that a result is stored, or given up; returns whether `waits` ended with it."""
        untold = self._untold.get(settlement.endpoint_id)
        if untold is None or not _may_hold(settlement):
            return False
        waited = untold.will_hold()
        untold.unstored -= 1
        if not untold.unstored:
            untold.asked = False
            if untold.failures >= untold.threshold:  # the database decided otherwise, or holds it
                untold.failures = 0
        self._forget(settlement.endpoint_id, untold)
        return waited and not untold.will_hold()

    def waits(self, endpoint_id: int) -> bool:
        """Return whether results are being stored that will have the endpoint held."""
        untold = self._untold.get(endpoint_id)
        return untold is not None and untold.will_hold()

    def allow(self, lane: Lane) -> bool:
        """Return whether `lane` was claimed after its endpoint was last found held.

        Also not while results are being stored that will have it held.
        """
        if self._untold and self.waits(lane.endpoint_id):
            return False
        return lane.claimed_at > self._found_at.get(lane.endpoint_id, -1.0)

    def _forget(self, endpoint_id: int, untold: _Untold) -> None:
        if not untold.failures and not untold.unstored:
            self._untold.pop(endpoint_id, None)


def _may_hold(settlement: Settlement) -> bool:
    attempts = settlement.attempts
    return bool(attempts) and attempts[-1].outcome is not Outcome.DELIVERED
