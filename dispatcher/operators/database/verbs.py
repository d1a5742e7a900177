"""The database: old snapshots, sizes, partitions, connections, schema revision."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, needs_text, span, visible
from holdfast.dispatcher.operators.database.store import Database
from holdfast.dispatcher.operators.overview.verbs import Need
from holdfast.sink.contract.exits import ExitCode

GROUP = verbs.Group("database", help="", store=Database, path="/database", tag="database")

_SNAPSHOTS = ("kind", "pid", "application", "state", "age", "query")
_TABLES = ("name", "live_rows", "dead_rows", "size", "vacuumed_at", "autovacuumed_at")
_PARTITIONS = ("parent", "days", "days_ahead", "days_behind", "rows", "size")

_KILOBYTE = 1_000
_MEGABYTE = 1_000_000


class Snapshot(TypedDict):
    """A transaction whose snapshot keeps vacuum from removing dead rows."""

    kind: Annotated[str, verbs.Doc("`session` or `prepared`.")]
    pid: int | None
    application: str
    state: str | None
    age_seconds: verbs.Seconds
    query: Annotated[str, verbs.Doc("Beginning of the query; empty for viewers.")]


class Connections(TypedDict):
    """Sessions of this database by application and state."""

    application: str
    state: str
    sessions: verbs.Count


class Table(TypedDict):
    """A table with updates in place."""

    name: str
    live_rows: Annotated[int, verbs.Doc("An estimate.")]
    dead_rows: Annotated[int, verbs.Doc("An estimate: row versions no longer visible.")]
    bytes: int
    vacuumed_at: verbs.Time | None
    autovacuumed_at: verbs.Time | None
    analyzed_at: verbs.Time | None


class Day(TypedDict):
    """A daily partition."""

    day: Annotated[date, verbs.Doc("In UTC.")]
    rows: Annotated[int, verbs.Doc("An estimate.")]
    bytes: int


class Partitions(TypedDict):
    """The daily partitions of a table."""

    parent: str
    days: verbs.Count
    days_ahead: Annotated[
        int,
        verbs.Doc("Consecutive days after today that have a partition; -1: today has none."),
    ]
    days_behind: Annotated[int, verbs.Doc("Days from the oldest partition to today.")]
    rows: Annotated[int, verbs.Doc("An estimate.")]
    bytes: int
    newest: list[Day]


class DatabaseNow(TypedDict):
    """State of the database."""

    at: Annotated[verbs.Time, verbs.Doc("By the database's clock.")]
    clock_ahead_seconds: Annotated[
        float,
        verbs.Doc("How far it is ahead of this machine's clock; negative: behind."),
    ]
    name: str
    server_version: str
    bytes: int
    connections_max: int
    revision: Annotated[str | None, verbs.Doc("Its schema revision.")]
    revision_needed: str
    snapshots: Annotated[list[Snapshot], verbs.Doc("The 10 oldest.")]
    connections: list[Connections]
    tables: list[Table]
    partitions: list[Partitions]
    needs: list[Need]


def _show(found: Row, _: Row) -> verbs.Text:
    sessions = sum(each["sessions"] for each in found["connections"])
    yield (
        f"database {visible(found['name'])}, Postgres {visible(found['server_version'])},"
        f" {_size(found['bytes'])}, {sessions} of {found['connections_max']} connections"
    )
    yield (
        f"  schema revision {found['revision']};"
        f" this version is built for {found['revision_needed']}"
    )
    ahead = found["clock_ahead_seconds"]
    side = "ahead of" if ahead >= 0 else "behind"
    yield f"  clock {display(found['at'])}, {span(abs(ahead))} {side} this machine"
    if found["snapshots"]:
        aged = [each | {"age": span(each["age_seconds"])} for each in found["snapshots"]]
        yield verbs.Table(aged, _SNAPSHOTS, "Oldest snapshots")
    else:
        yield "  no other session holds a snapshot"
    yield verbs.Table(_sized(found["tables"]), _TABLES, "Tables with updates in place")
    yield verbs.Table(_sized(found["partitions"]), _PARTITIONS, "Daily partitions")
    yield verbs.Table(found["connections"], ("application", "state", "sessions"), "Connections")
    yield from needs_text(found["needs"])


def _sized(rows: Sequence[Row]) -> list[Row]:
    return [row | {"size": _size(row["bytes"])} for row in rows]


def _size(size: int) -> str:
    if size < _MEGABYTE:
        return f"{size / _KILOBYTE:,.0f} kB"
    return f"{size / _MEGABYTE:,.1f} MB"


def _without_queries(found: Row) -> Row:
    return found | {"snapshots": [each | {"query": ""} for each in found["snapshots"]]}


@GROUP.verb(
    "",
    help="Show old snapshots, dead rows, partitions, connections, schema revision and clock.\n\n"
    "Exit code 4 when something needs a person: an old snapshot, or too few partitions ahead. To"
    " check that the server is durable, use `holdfast db doctor`.",
    text=_show,
    route=verbs.Route("Show the state of the database."),
    result=DatabaseNow,
    bodies=verbs.Bodies(_without_queries, for_operators=True),
    screen=verbs.Screen("/database", "system/database.html", "found"),
    ends=lambda found: ExitCode.DEGRADED if found["needs"] else ExitCode.OK,
)
def show_database(store: Database) -> Row:
    """Return snapshots, sizes, partitions, connections and schema revision."""
    return store.report()
