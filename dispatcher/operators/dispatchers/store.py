"""The dispatchers that the database has on record: running and crashed ones."""

from holdfast.dispatcher.operators.common.session import OperatorSession, Row

DISPATCHERS_MAX = 1000
"""Maximum number of rows; a dispatcher that ends in order removes its own."""


class Dispatchers(OperatorSession):
    """Reads of dispatchers."""

    def instances(self) -> list[Row]:
        """Return every dispatcher, the newest heartbeat first.

        A row has `id` (UUID), `host`, `pid`, `version`, `started_at`, `heartbeat_at`,
        `heartbeat_age_seconds`, `in_flight` (requests in flight at that heartbeat), `draining`, and
        `alive`: its heartbeat is less than a minute old, or the server is read-only, and the
        heartbeat was no older when it became so.
        """
        return self._all("dispatchers/list", {"limit": DISPATCHERS_MAX, **self._heartbeats()})
