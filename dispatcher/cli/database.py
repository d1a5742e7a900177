"""`holdfast database`: sessions, size, partitions and schema of the database."""

from collections.abc import Sequence

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, Wide
from holdfast.dispatcher.cli.output import display, print_json, print_needs, print_rows, visible
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.operators.database.store import Database
from holdfast.sink.contract.exits import ExitCode

_SNAPSHOTS = ("kind", "pid", "application", "state", "age", "query")
_TABLES = ("name", "live_rows", "dead_rows", "size", "vacuumed_at", "autovacuumed_at")
_PARTITIONS = ("parent", "days", "days_ahead", "days_behind", "rows", "size")

_KILOBYTE = 1_000
_MEGABYTE = 1_000_000


def database(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """Show old snapshots, dead rows, partitions, connections, schema revision and clock.

    Exit code 4 when something needs a person: an old snapshot, or too few partitions ahead. To
    check that the server is durable, use `holdfast db doctor`.
    """
    with Database.connect(dsn) as store:
        found = store.report()
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found["needs"]:
        raise typer.Exit(ExitCode.DEGRADED)


def _show(found: Row) -> None:
    sessions = sum(each["sessions"] for each in found["connections"])
    typer.echo(
        f"database {visible(found['name'])}, Postgres {visible(found['server_version'])},"
        f" {_size(found['bytes'])}, {sessions} of {found['connections_max']} connections"
    )
    typer.echo(
        f"  schema revision {found['revision']};"
        f" this version is built for {found['revision_needed']}"
    )
    ahead = found["clock_ahead_seconds"]
    side = "ahead of" if ahead >= 0 else "behind"
    typer.echo(f"  clock {display(found['at'])}, {span(abs(ahead))} {side} this machine")
    if found["snapshots"]:
        print_rows(
            [{**each, "age": span(each["age_seconds"])} for each in found["snapshots"]],
            _SNAPSHOTS,
            "Oldest snapshots",
        )
    else:
        typer.echo("  no other session holds a snapshot")
    print_rows(_sized(found["tables"]), _TABLES, "Tables with updates in place")
    print_rows(_sized(found["partitions"]), _PARTITIONS, "Daily partitions")
    print_rows(found["connections"], ("application", "state", "sessions"), "Connections")
    print_needs(found["needs"])


def _sized(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "size": _size(row["bytes"])} for row in rows]


def _size(size: int) -> str:
    if size < _MEGABYTE:
        return f"{size / _KILOBYTE:,.0f} kB"
    return f"{size / _MEGABYTE:,.1f} MB"
