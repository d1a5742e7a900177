"""Monitors the backlog, and whether the database answers, on a connection outside the pool."""

from dispatcher.delivery.health import Health
from dispatcher.delivery.store.watch import Watch
from dispatcher.delivery.telemetry.metrics import Measures

MONITOR_SECONDS = 5.0
"""Interval of the monitor; `dispatcher.delivery.health.ANSWER_SECONDS` is a multiple."""


class BacklogMonitor:
    """Keeps `measures` and `health` up to date."""

    def __init__(self, watch: Watch, measures: Measures, health: Health) -> None:
        self._watch = watch
        self._measures = measures
        self._health = health

    async def step(self) -> bool:
        """Read the backlog once; always returns False. Raises `StoreUnavailableError`."""
        backlog = await self._watch.backlog()
        self._health.answered(backlog.misfit)
        if backlog.misfit is None:
            endpoints = backlog.endpoints
            self._measures.initialise(each.name for each in endpoints)
            self._measures.due = {each.name: each.due_lanes for each in endpoints}
            self._measures.oldest_due_age_seconds = {
                each.name: each.oldest_due_age_seconds for each in endpoints
            }
            self._measures.breakers = {each.name: each.breaker for each in endpoints}
            self._measures.partition_days_ahead = backlog.partition_days_ahead
        return False
