"""Whether the database is away: said once when it goes and once when it answers again."""

from dispatcher.delivery.telemetry.log import Line, Telemetry
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import StoreUnavailableError


class Outage:
    """What every loop of a process sees of one outage, as two lines instead of one for each try."""

    def __init__(self, telemetry: Telemetry) -> None:
        """The database counts as present until `away`."""
        self._telemetry = telemetry
        self._since: float | None = None

    def away(self, error: StoreUnavailableError) -> None:
        """Take note that a transaction found no database."""
        if self._since is None:
            self._since = seconds()
            self._telemetry.warn(Line.STORE_AWAY, error=str(error))

    def back(self) -> None:
        """Take note that a transaction came to its end."""
        if self._since is not None:
            away = round(seconds() - self._since, 1)
            self._since = None
            self._telemetry.say(Line.STORE_BACK, seconds=away)
