"""What operators do about endpoints and streams, and what `holdfast status` shows.

A change and its audit row commit together.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.store.operator_endpoints import EndpointStore
from dispatcher.store.operator_session import Row, operator_connection
from sink.contract.exits import CommandError, ExitCode

__all__ = ["OperatorStore", "Row", "operator_store"]


class OperatorStore(EndpointStore):
    """Operator commands on an open connection; use `operator_store(dsn)` to get one."""

    def streams(self) -> list[Row]:
        """Return every stream with its newest batch."""
        return self._all("stream_list")

    def adopt(self, stream: str, query_id: str, reason: str) -> Row:
        """Let `stream` accept batches of `query_id` from now on; the run in progress is fenced."""
        with self._transaction():
            row = self._maybe("stream_adopt", {"stream": stream, "query_id": query_id})
            if row is None:
                raise CommandError(
                    f"there is no stream {stream!r}; nothing was changed. A stream appears when a"
                    " sink writes to it first; see `holdfast stream list`.",
                    ExitCode.NOTHING_MATCHED,
                )
            detail = {"query_id": query_id, "previous": row["previous_query_id"]}
            self._audit("stream.adopt", stream, reason, detail)
        return row

    def totals(self) -> Row:
        """Return the counts that `holdfast status` shows, as of one snapshot."""
        return self._one("status_totals")

    def dispatchers(self) -> list[Row]:
        """Return the dispatchers whose heartbeat is fresh."""
        return self._all("status_dispatchers")


@contextmanager
def operator_store(dsn: str | None) -> Iterator[OperatorStore]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield OperatorStore(connection)
