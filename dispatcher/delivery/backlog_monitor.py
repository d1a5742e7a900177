"""Looking at the database from beside: what waits there, and whether it answers at all."""

from dispatcher.delivery.health import Health
from dispatcher.delivery.store.watch import Watch
from dispatcher.delivery.telemetry.metrics import Measures

LOOK_SECONDS = 5.0
"""How often it looks; `dispatcher.delivery.health.ANSWER_SECONDS` is some of these."""


class Lookout:
    """Keeps `measures` and `health` up to date."""

    def __init__(self, watch: Watch, measures: Measures, health: Health) -> None:
        self._watch = watch
        self._measures = measures
        self._health = health

    async def look(self) -> bool:
        """Look once; raises `StoreUnavailableError`. There is nothing it would be busy with."""
        backlog = await self._watch.backlog()
        self._health.answered(backlog.misfit)
        if backlog.misfit is None:
            endpoints = backlog.endpoints
            self._measures.know(each.name for each in endpoints)
            self._measures.due = {each.name: each.due_lanes for each in endpoints}
            self._measures.oldest_due_age_seconds = {
                each.name: each.oldest_due_age_seconds for each in endpoints
            }
            self._measures.breakers = {each.name: each.breaker for each in endpoints}
            self._measures.partition_days_ahead = backlog.partition_days_ahead
        return False
