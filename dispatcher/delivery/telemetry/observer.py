"""What the loops observe, as metrics. A dispatcher without `--listen` has no observer."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from holdfast.dispatcher.delivery.rules.values import Claim, Lane, Rescued, Settled, Settlement
from holdfast.dispatcher.delivery.telemetry.metrics import Measures
from holdfast.dispatcher.outbound.receipt import says_stale
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.states import Outcome

FORGET_SECONDS = 600
"""How long after its lease a claimed lane that was never settled is remembered."""


class Observer:
    """Turns claims, results and heartbeats into `measures`. Times are `seconds()`."""

    def __init__(
        self, measures: Measures, name: Callable[[int], str], now: Callable[[], float]
    ) -> None:
        """`name` returns the name of an endpoint by its id, `now` the database's POSIX time."""
        self._measures = measures
        self._name = name
        self._claimed: dict[tuple[int, int, UUID], Lane] = {}
        self._now = now

    def claimed(self, claim: Claim, began: float) -> None:
        """Observe the duration and the size of a claim."""
        self._measures.claim_seconds.observe(seconds() - began)
        self._measures.claim_lanes.observe(len(claim.lanes))
        self._forget(began)
        for lane in claim.lanes:
            self._claimed[lane.endpoint_id, lane.subject_id, lane.token] = lane

    def settled(
        self, settlements: Sequence[Settlement], settled: Sequence[Settled], began: float
    ) -> None:
        """Observe the duration of a settlement; count the results and the lost leases in it."""
        self._measures.settle_seconds.observe(seconds() - began)
        now = self._now()
        for each in settled:
            self._count(each.settlement, now)
        for settlement in _lost(settlements, settled):
            self._claimed.pop(_lease_of(settlement), None)
            self._measures.fenced[self._name(settlement.endpoint_id),] += 1

    def replays_settled(
        self, settlements: Sequence[Settlement], settled: Sequence[Settled], _began: float
    ) -> None:
        """Count results of replayed entries. Their time from entry to 2xx is not a latency."""
        for each in settled:
            self._count(each.settlement, 0.0)
        for settlement in _lost(settlements, settled):
            self._measures.fenced[self._name(settlement.endpoint_id),] += 1

    def replay_items(self, items: int) -> None:
        """Count claimed items of replays."""
        self._measures.replay_items += items

    def rescued(self, rescued: Iterable[Rescued]) -> None:
        """Count attempts that ended with their lease."""
        for each in rescued:
            name = self._name(each.endpoint_id)
            self._measures.rescued[name,] += 1
            self._measures.unknown[name,] += 1

    def beat(self, skew_seconds: float) -> None:
        """Record the offset of this host's clock from the database's."""
        self._measures.clock_skew_seconds = skew_seconds

    def _count(self, settlement: Settlement, now: float) -> None:
        measures, name = self._measures, self._name(settlement.endpoint_id)
        lane = self._claimed.pop(_lease_of(settlement), None)
        created = {} if lane is None else {each.sequence: each.created_at for each in lane.entries}
        for attempt in settlement.attempts:
            labels = (name, attempt.outcome.value)
            measures.attempts[labels] += 1
            measures.attempt_seconds.observe(attempt.duration_ms / 1000, labels)
            if attempt.outcome is Outcome.UNKNOWN:
                measures.unknown[name,] += 1
            elif attempt.outcome is Outcome.DELIVERED and attempt.sequence in created:
                since = created[attempt.sequence].timestamp()
                measures.end_to_end_seconds.observe(max(0.0, now - since), (name,))
                # A replayed entry was sent before, which explains a stale answer.
                measures.stale[name,] += attempt.number == 1 and says_stale(attempt.receipt)
            measures.other_keys[name,] += attempt.other_key is not None
            measures.barred[name,] += attempt.barred
            measures.windows_shrunk[name,] += attempt.window_shrunk
        if settlement.dead is not None:
            measures.dead[name,] += 1

    def _forget(self, now: float) -> None:
        """Drop lanes that were never settled; the oldest claims come first."""
        for key, lane in list(self._claimed.items())[:16]:
            if lane.trusted_until < now - FORGET_SECONDS:
                del self._claimed[key]


def _lost(settlements: Sequence[Settlement], settled: Sequence[Settled]) -> list[Settlement]:
    stored = {id(each.settlement) for each in settled}
    return [each for each in settlements if id(each) not in stored]


def _lease_of(settlement: Settlement) -> tuple[int, int, UUID]:
    return settlement.endpoint_id, settlement.subject_id, settlement.token
