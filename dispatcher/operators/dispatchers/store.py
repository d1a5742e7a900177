"""The dispatchers that a database knows of: those that run, and those that died at their work."""

from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.operators.common.session import OperatorSession, Row, operator_connection

DISPATCHERS_MAX = 1000
"""As many are listed at most; one that ends of itself takes its row away."""


class Dispatchers(OperatorSession):
    """Reads of dispatchers; use `dispatchers(dsn)` to get it."""

    def instances(self) -> list[Row]:
        """Return every dispatcher, the one that was heard of last first.

        A row has `id` (UUID), `host`, `pid`, `version`, `started_at`, `heartbeat_at`,
        `heartbeat_age_seconds`, `in_flight` (requests under way at that beat), `draining`, and
        `alive`: it was heard of within the last minute.
        """
        return self._all("dispatchers/list", {"limit": DISPATCHERS_MAX})


@contextmanager
def dispatchers(dsn: str | None) -> Iterator[Dispatchers]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Dispatchers(connection)
