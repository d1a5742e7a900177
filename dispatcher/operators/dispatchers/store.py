"""The dispatchers that a database knows of: those that run, and those that died at their work."""

from dispatcher.operators.common.session import OperatorSession, Row

DISPATCHERS_MAX = 1000
"""As many are listed at most; one that ends of itself takes its row away."""


class Dispatchers(OperatorSession):
    """Reads of dispatchers."""

    def instances(self) -> list[Row]:
        """Return every dispatcher, the one that was heard of last first.

        A row has `id` (UUID), `host`, `pid`, `version`, `started_at`, `heartbeat_at`,
        `heartbeat_age_seconds`, `in_flight` (requests under way at that beat), `draining`, and
        `alive`: it was heard of within the last minute.
        """
        return self._all("dispatchers/list", {"limit": DISPATCHERS_MAX})
