"""The database as operators see it: size, connections, dead rows, partitions, what it lacks."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from holdfast.dispatcher.operators.common.session import OperatorSession, Row, read_range
from holdfast.dispatcher.operators.overview.rules import database_needs
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.schema import SCHEMA_REVISION, misfit

SNAPSHOTS_SHOWN = 10
CONNECTIONS_SHOWN = 50
DAYS_SHOWN = 800
"""Partitions of both tables together: more than a year."""


class Database(OperatorSession):
    """Reads of the database itself."""

    def schema_mismatch(self) -> str | None:
        """Return why this version must not work on the schema; None if it may."""
        stored = read_range(self._connection)
        return misfit(stored["revision"], stored["serves_from"])

    def report(self) -> Row:
        """Return the state of the database now.

        - `at` (its clock), `clock_ahead_seconds` (of this machine's; negative: behind), `name`,
          `server_version`, `bytes`, `connections_max`;
        - `revision` of its schema and `revision_needed`, for which this version is built;
        - `snapshots`: the 10 oldest, each with `kind` (session, prepared), `pid`, `application`,
          `state`, `age_seconds` of the transaction, and the beginning of its `query`. Only a login
          with pg_read_all_stats sees these of other users' sessions;
        - `connections`: `application`, `state`, `sessions`;
        - `tables` that are changed in place: `name`, `live_rows` and `dead_rows` (estimates),
          `bytes`, `vacuumed_at`, `autovacuumed_at`, `analyzed_at`;
        - `partitions` of entry and attempt: `parent`, `days`, `days_ahead` (whole days after today
          without a gap; -1: not even today), `days_behind` (from the oldest to today), `rows`
          (an estimate), `bytes`, and as `newest` each day's `day`, `rows` and `bytes`;
        - `needs`: what needs a person, as in `Overview.overview`.
        """
        with self._transaction():
            # The login, not the role, has the right to see other sessions.
            before = datetime.now(UTC)
            at = self._one("database/clock")["at"]
            after = datetime.now(UTC)
            days = self._all("database/days", {"limit": DAYS_SHOWN})
            tables = self._all("database/tables")
            facts = self._one("database/facts")
            self._run("common/login")
            snapshots = self._all("database/snapshots", {"limit": SNAPSHOTS_SHOWN})
            connections = self._all("database/connections", {"limit": CONNECTIONS_SHOWN})
        today = at.astimezone(UTC).date()
        report = {
            **facts,
            "at": at,
            "clock_ahead_seconds": (at - (before + (after - before) / 2)).total_seconds(),
            "revision_needed": SCHEMA_REVISION,
            "snapshots": [_with_query(each) for each in snapshots],
            "connections": [_named(each) for each in connections],
            "tables": tables,
            "partitions": [
                _partitions(parent, [day for day in days if day["parent"] == parent], today)
                for parent in ("entry", "attempt")
            ],
        }
        return {**report, "needs": [need.row() for need in database_needs(report)]}


def _with_query(snapshot: Row) -> Row:
    return {**_named(snapshot), "query": one_line(snapshot["query"] or "")}


def _named(session: Row) -> Row:
    return {**session, "application": one_line(session["application"] or "")}


def _partitions(parent: str, days: Sequence[Row], today: date) -> Row:
    days_there = {each["day"] for each in days}
    days_ahead = -1
    while today + timedelta(days=days_ahead + 1) in days_there:
        days_ahead += 1
    return {
        "parent": parent,
        "days": len(days),
        "days_ahead": days_ahead,
        "days_behind": (today - min(days_there, default=today)).days,
        "rows": sum(each["rows"] for each in days),
        "bytes": sum(each["bytes"] for each in days),
        "newest": [{name: each[name] for name in ("day", "rows", "bytes")} for each in days],
    }
