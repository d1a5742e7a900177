"""Monitors the backlog and the database server, on a connection outside the pool."""

from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.delivery.telemetry.metrics import Measures
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.dispatcher.shared.text import one_line

MONITOR_SECONDS = 5.0
"""Interval of the monitor; `holdfast.dispatcher.delivery.health.ANSWER_SECONDS` is a multiple."""

SERVER_SECONDS = 15.0
"""Interval of the server's monitor, which adds up the sizes of all files of the database."""

UNDELIVERED_SECONDS = 30.0
"""Interval of the search for the oldest undelivered entry, which reads every waiting lane."""


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
        self._measures.answered_at = seconds()
        if backlog.misfit is None:
            endpoints = backlog.endpoints
            self._measures.initialise(each.name for each in endpoints)
            self._measures.due = {each.name: each.due_lanes for each in endpoints}
            self._measures.oldest_due_age_seconds = {
                each.name: each.oldest_due_age_seconds for each in endpoints
            }
            self._measures.on_hold = {each.name: each.on_hold for each in endpoints}
            self._measures.breakers = {each.name: each.breaker for each in endpoints}
            self._measures.partition_days_ahead = backlog.partition_days_ahead
        return False

    async def undelivered(self) -> bool:
        """Read the oldest undelivered entry once; returns and raises as `step`."""
        self._measures.oldest_undelivered_age_seconds = await self._watch.undelivered()
        return False


class ServerMonitor:
    """Keeps what `measures` say of the server up to date.

    A server that refuses its own views ends no loop, because delivery needs none of them.
    """

    def __init__(self, watch: Watch, measures: Measures, telemetry: Telemetry) -> None:
        self._watch = watch
        self._measures = measures
        self._telemetry = telemetry
        self._refused = ""

    async def step(self) -> bool:
        """Read the server once; always returns False. Raises `StoreUnavailableError`."""
        try:
            self._measures.server = await self._watch.server()
            self._refused = ""
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - its errors must not stop delivery
            self._measures.server = ServerState()
            reason = one_line(str(error))
            if reason != self._refused:
                self._telemetry.warn(Line.SERVER_UNREAD, error=reason)
            self._refused = reason
        return False
