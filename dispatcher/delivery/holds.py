"""What is on hold, as far as this process knows: endpoints, by their breaker or by Retry-After, and
single subjects, by an operator.

The database decides what may be claimed. This module keeps lanes that were claimed before a hold
from being sent after it: they are released, and no attempt is counted. It also waits for the
database where unstored results will cause a hold: storing them takes some milliseconds or, during
an outage, as long as a lease, and a receiver that is down would get many times the requests that
its breaker allows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.dispatcher.delivery.rules.pace import failures_after
from holdfast.dispatcher.delivery.rules.values import Lane, Settlement
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.states import Outcome


@dataclass(slots=True)
class _Unstored:
    """Results of one endpoint that the database may not have yet."""

    failures: int = 0
    """Consecutive failures, including stored ones."""
    results: int = 0
    """Number of unstored results that did not end with a delivery."""
    holding: bool = False
    """Whether one of them holds the endpoint at once: Retry-After, 410 or the address guard."""
    threshold: int = 0

    def will_hold(self) -> bool:
        if not self.results:
            return False
        return self.holding or 0 < self.threshold <= self.failures


class Holds:
    """When each endpoint was last known to be on hold, and which ones are about to be."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        """`clock` must be that of `Lane.claimed_at`."""
        self._clock = clock
        self._held_at: dict[int, float] = {}
        self._subjects: dict[tuple[int, int], float] = {}
        self._unstored: dict[int, _Unstored] = {}

    def mark_held(self, endpoint_ids: Iterable[int]) -> None:
        """Record that these endpoints are on hold now."""
        now = self._clock()
        self._held_at.update(dict.fromkeys(endpoint_ids, now))

    def mark_subjects(self, lanes: Iterable[tuple[int, int]]) -> None:
        """Record that exactly these subjects, each at an endpoint, are on hold now."""
        self._subjects = dict.fromkeys(lanes, self._clock())

    def tried(self, settlement: Settlement, endpoint: Endpoint) -> None:
        """Record a result that is about to be stored; `stored` must follow."""
        if not self._unstored and not _may_hold(settlement):
            return
        unstored = self._unstored.setdefault(endpoint.id, _Unstored())
        for attempt in settlement.attempts:
            unstored.failures = failures_after(unstored.failures, attempt)
            unstored.holding |= attempt.barred or attempt.put_off
        unstored.holding |= settlement.disable is not None
        unstored.threshold = endpoint.breaker_threshold
        unstored.results += _may_hold(settlement)
        self._forget(endpoint.id, unstored)

    def stored(self, settlement: Settlement) -> bool:
        """Record that a result is stored or dropped; returns whether that ended `will_hold`."""
        unstored = self._unstored.get(settlement.endpoint_id)
        if unstored is None or not _may_hold(settlement):
            return False
        waited = unstored.will_hold()
        unstored.results -= 1
        if not unstored.results:
            unstored.holding = False
            if unstored.failures >= unstored.threshold:  # the database decided: on hold or not
                unstored.failures = 0
        self._forget(settlement.endpoint_id, unstored)
        return waited and not unstored.will_hold()

    def will_hold(self, endpoint_id: int) -> bool:
        """Return whether unstored results will put the endpoint on hold."""
        unstored = self._unstored.get(endpoint_id)
        return unstored is not None and unstored.will_hold()

    def allow(self, lane: Lane) -> bool:
        """Return whether `lane` was claimed after its endpoint's and its subject's last hold.

        False also while unstored results will put the endpoint on hold.
        """
        if self._unstored and self.will_hold(lane.endpoint_id):
            return False
        subject = (lane.endpoint_id, lane.subject_id)
        if self._subjects and lane.claimed_at <= self._subjects.get(subject, -1.0):
            return False
        return lane.claimed_at > self._held_at.get(lane.endpoint_id, -1.0)

    def _forget(self, endpoint_id: int, unstored: _Unstored) -> None:
        if not unstored.failures and not unstored.results:
            self._unstored.pop(endpoint_id, None)


def _may_hold(settlement: Settlement) -> bool:
    attempts = settlement.attempts
    return bool(attempts) and attempts[-1].outcome is not Outcome.DELIVERED
