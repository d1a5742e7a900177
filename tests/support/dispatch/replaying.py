"""Replays for tests: planned and applied by the real store."""

from typing import Any
from uuid import UUID

from holdfast.dispatcher.operators.replays.rules import ReplayFilter, ReplayScope
from holdfast.dispatcher.operators.replays.store import Replays

ALL = ReplayFilter(endpoint="payouts")
DEAD = ReplayFilter(endpoint="payouts", states=(ReplayScope.DEAD,))
DELIVERED = ReplayFilter(endpoint="payouts", states=(ReplayScope.DELIVERED,))
WAITING = ReplayFilter(endpoint="payouts", states=(ReplayScope.WAITING,))


def applied(dsn: str, wanted: ReplayFilter, **options: Any) -> UUID:
    """Plan a replay and let dispatchers begin with it."""
    with Replays.connect(dsn) as store:
        id_: UUID = store.plan(wanted, reason="a test", **options)["id"]
        store.apply(id_)
    return id_


def progress(dsn: str, id_: UUID) -> dict[str, Any]:
    """How far a replay has come: its state, and its counts without those that are 0."""
    with Replays.connect(dsn) as store:
        status = store.status(id_)
    counts = {name: count for name, count in status["progress"].items() if count}
    return {"state": status["state"], **counts}
