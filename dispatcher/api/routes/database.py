"""The database: what holds it up, how large it is, whether it fits this version."""

from datetime import date

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.routes.overview import Need
from dispatcher.api.shapes import Count, Seconds, Shown, Time
from dispatcher.operators.database.store import Database
from sink.contract.states import AccessRole

router = APIRouter(prefix="/database", tags=["database"])


class Snapshot(Shown):
    """A transaction that keeps the database from cleaning up."""

    kind: str = Field(description="`session` or `prepared`.")
    pid: int | None
    application: str
    state: str | None
    age_seconds: Seconds
    query: str = Field(description="Its beginning; empty for viewers.")


class Connections(Shown):
    """Sessions of this database of one kind."""

    application: str
    state: str
    sessions: Count


class Table(Shown):
    """A table that is changed in place."""

    name: str
    live_rows: int = Field(description="An estimate.")
    dead_rows: int = Field(description="An estimate: versions that nobody sees any more.")
    bytes: int
    vacuumed_at: Time | None
    autovacuumed_at: Time | None
    analyzed_at: Time | None


class Day(Shown):
    """A partition."""

    day: date = Field(description="In UTC.")
    rows: int = Field(description="An estimate.")
    bytes: int


class Partitions(Shown):
    """The days of a table."""

    parent: str
    days: Count
    days_ahead: int = Field(description="Whole days after today without a gap; -1: not even today.")
    days_behind: int = Field(description="From the oldest to today.")
    rows: int = Field(description="An estimate.")
    bytes: int
    newest: list[Day]


class DatabaseNow(Shown):
    """What there is to say of the database."""

    at: Time = Field(description="By its clock.")
    clock_ahead_seconds: float = Field(description="Of this machine's clock; negative: behind.")
    name: str
    server_version: str
    bytes: int
    connections_max: int
    revision: str | None = Field(description="Of its schema.")
    revision_needed: str
    snapshots: list[Snapshot] = Field(description="The 10 oldest.")
    connections: list[Connections]
    tables: list[Table]
    partitions: list[Partitions]
    needs: list[Need]


@router.get("", summary="Look at the database.")
def show_database(session: Viewer) -> DatabaseNow:
    """Return what holds the database up, and how large it is."""
    with session.open(Database) as store:
        found = store.report()
    if not session.may(AccessRole.OPERATOR):
        found["snapshots"] = [{**each, "query": ""} for each in found["snapshots"]]
    return DatabaseNow.model_validate(found)
