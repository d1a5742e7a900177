"""The database for a person."""

from collections.abc import Sequence

import typer

from dispatcher.cli.common.shared import print_rows
from dispatcher.cli.common.shown import plain, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.common.text import span

_SNAPSHOTS = ("kind", "pid", "application", "state", "age", "query")
_TABLES = ("name", "live_rows", "dead_rows", "size", "vacuumed_at", "autovacuumed_at")
_PARTITIONS = ("parent", "days", "days_ahead", "days_behind", "rows", "size")

_KILOBYTE = 1_000
_MEGABYTE = 1_000_000


def shown(found: Row) -> None:
    """Print what `Database.look` found."""
    sessions = sum(each["sessions"] for each in found["connections"])
    typer.echo(
        f"database {visible(found['name'])}, Postgres {visible(found['server_version'])},"
        f" {_size(found['bytes'])}, {sessions} of {found['connections_max']} connections"
    )
    typer.echo(f"  schema revision {found['revision']}, {found['revision_needed']} is needed")
    ahead = found["clock_ahead_seconds"]
    side = "ahead of" if ahead >= 0 else "behind"
    typer.echo(f"  clock {plain(found['at'])}, {span(abs(ahead))} {side} this machine")
    if found["snapshots"]:
        print_rows(
            [{**each, "age": span(each["age_seconds"])} for each in found["snapshots"]],
            _SNAPSHOTS,
            "Oldest snapshots",
        )
    else:
        typer.echo("  no other session holds a snapshot")
    print_rows(_sized(found["tables"]), _TABLES, "Tables that are changed in place")
    print_rows(_sized(found["partitions"]), _PARTITIONS, "Days")
    print_rows(found["connections"], ("application", "state", "sessions"), "Connections")
    told(found["needs"])


def told(needs: Sequence[Row]) -> None:
    """Print what needs a person, each with its command."""
    for need in needs:
        typer.echo(f"{visible(need['sentence'])}\n    {visible(need['command'])}")


def _sized(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "size": _size(row["bytes"])} for row in rows]


def _size(size: int) -> str:
    if size < _MEGABYTE:
        return f"{size / _KILOBYTE:,.0f} kB"
    return f"{size / _MEGABYTE:,.1f} MB"
