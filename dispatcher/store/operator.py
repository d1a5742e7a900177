"""What operators do about endpoints and streams, and what `holdfast status` shows.

A change and its audit row commit together.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from dispatcher.store.operator_session import (
    STATEMENT_SECONDS,
    OperatorSession,
    Row,
    operator_connection,
)
from sink.contract.exits import CommandError, ExitCode

__all__ = ["OperatorStore", "Row", "listed", "operator_store"]


class OperatorStore(OperatorSession):
    """Operator commands on an open connection; use `operator_store(dsn)` to get one."""

    def add_endpoint(self, settings: Row, *, from_beginning: bool, reason: str) -> Row:
        """Insert an endpoint, by default for decisions from now on; returns its row.

        It waits for routing under way, and routing waits for it: an entry created after `starts_at`
        is routed by somebody who sees the endpoint. With `from_beginning` it gets every entry that
        is stored; see `backfill`. Raises `CommandError` when the name is taken, a value is refused
        by the schema, or routing takes too long.
        """
        with self._transaction():
            self._keep_routing_out()
            try:
                row = self._one("endpoint_add", {**settings, "from_beginning": from_beginning})
            except psycopg.errors.UniqueViolation:
                raise CommandError(
                    f"there is an endpoint {settings['name']!r} already; nothing was changed."
                    " See `holdfast endpoint list`."
                ) from None
            except psycopg.errors.CheckViolation as error:
                raise CommandError(
                    f"the endpoint was not added: the schema refuses it"
                    f" ({error.diag.constraint_name}). Nothing was changed."
                ) from None
            self._audit("endpoint.add", settings["name"], reason, settings)
        if from_beginning:
            self.backfill(settings["name"])
        return row

    def backfill(self, name: str) -> int:
        """Make the lanes of the entries that were routed before an endpoint existed; their number.

        Never in the transaction that adds the endpoint: a batch that commits and is routed between
        its snapshot and its commit would be missed. Doing it again changes nothing. Raises
        `CommandError` when there is no such endpoint, or when it starts later than the beginning.
        """
        with self._transaction():
            found = self._maybe("endpoint_from_beginning", {"name": name})
            if found is None:
                raise CommandError(
                    f"there is no endpoint {name!r} that starts at the beginning; nothing was"
                    " changed. See `holdfast endpoint list`.",
                    ExitCode.NOTHING_MATCHED,
                )
            # It reads every entry that is stored, which may take longer than other commands.
            self._connection.execute("SELECT set_config('statement_timeout', '0', true)")
            return self._run("endpoint_backfill", {"endpoint_id": found["id"]}).rowcount

    def endpoints(self) -> list[Row]:
        """Return every endpoint with its backlog."""
        return self._all("endpoint_list")

    def set_endpoint_state(self, name: str, state: str, reason: str) -> Row:
        """Pause, resume or disable an endpoint; raises `CommandError` when there is none."""
        with self._transaction():
            row = self._maybe("endpoint_set_state", {"name": name, "state": state, "why": reason})
            if row is None:
                raise CommandError(
                    f"there is no endpoint {name!r}; nothing was changed.",
                    ExitCode.NOTHING_MATCHED,
                )
            self._audit(f"endpoint.{state}", name, reason, {"state": state})
        return row

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

    def _keep_routing_out(self) -> None:
        try:
            self._run("route_lock")
        except psycopg.errors.QueryCanceled:
            raise CommandError(
                f"a batch has been in routing for more than {STATEMENT_SECONDS} s, which an"
                " endpoint must not be added in the middle of. Nothing was changed; try again"
                " later."
            ) from None


@contextmanager
def operator_store(dsn: str | None) -> Iterator[OperatorStore]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield OperatorStore(connection)


def listed(values: Sequence[str] | None) -> list[str]:
    """Return a typer list option as a list; typer passes None for an option that was not given."""
    return list(values or ())
