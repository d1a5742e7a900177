"""The audit: expected actions against those that the payouts service applied. Pure.

Neither list comes from the outbox: one is recomputed from the event files, the other is read from
the payouts service's own tables.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.deploy.local.demo.reference import Decision
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.sink.contract.key import Key


@dataclass(frozen=True, slots=True)
class Action:
    """A hold set or lifted on a merchant; amounts in minor units."""

    key: str
    merchant_id: str
    action: str
    window_end: str
    exposure_minor: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of actions that differ from the expected ones; all zero if the guarantee is met."""

    applied: int
    lost: int
    repeated: int
    out_of_order: int
    altered: int

    @property
    def kept(self) -> bool:
        """Whether the guarantee was met."""
        return not (self.lost or self.repeated or self.out_of_order or self.altered)


def expected(decisions: Iterable[Decision]) -> list[Action]:
    """Return the action of each decision; the key is derived from the decision alone."""
    return [
        Action(
            _key(decision).text,
            decision.merchant_id,
            decision.action,
            rfc3339_from_micros(decision.window_end),
            decision.exposure_minor,
        )
        for decision in decisions
    ]


def _key(decision: Decision) -> Key:
    return Key.of(
        [
            "payout-hold/v1",
            decision.merchant_id,
            rfc3339_from_micros(decision.window_end),
            decision.action,
            str(decision.ordinal),
        ]
    )


def audit(should: Sequence[Action], applied: Sequence[Action]) -> Verdict:
    """Compare the expected actions with the applied ones, both in order.

    lost          expected, but never applied
    repeated      applied more often than expected, which may be zero times
    out_of_order  applied after a later action of the same merchant
    altered       applied with the right key to another merchant, window or amount
    """
    place = {action.key: number for number, action in enumerate(should)}
    meant = {action.key: action for action in should}
    times = Counter(action.key for action in applied)
    furthest: dict[str, int] = {}
    out_of_order = 0
    for action in applied:
        number = place.get(action.key)
        if number is None:
            continue
        if number < furthest.get(action.merchant_id, -1):
            out_of_order += 1
        furthest[action.merchant_id] = max(number, furthest.get(action.merchant_id, -1))
    return Verdict(
        applied=len(applied),
        lost=sum(times[key] == 0 for key in place),
        repeated=sum(count - (key in place) for key, count in times.items()),
        out_of_order=out_of_order,
        altered=sum(a.key in meant and a != meant[a.key] for a in applied),
    )
