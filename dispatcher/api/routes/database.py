"""The database: old snapshots, sizes, partitions, connections, schema revision."""

from datetime import date

from fastapi import APIRouter
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.responses import Count, ResponseModel, Seconds, Time
from holdfast.dispatcher.api.routes.overview import Need
from holdfast.dispatcher.operators.database.store import Database
from holdfast.sink.contract.states import AccessRole

router = APIRouter(prefix="/database", tags=["database"])


class Snapshot(ResponseModel):
    """A transaction whose snapshot keeps vacuum from removing dead rows."""

    kind: str = Field(description="`session` or `prepared`.")
    pid: int | None
    application: str
    state: str | None
    age_seconds: Seconds
    query: str = Field(description="Beginning of the query; empty for viewers.")


class Connections(ResponseModel):
    """Sessions of this database by application and state."""

    application: str
    state: str
    sessions: Count


class Table(ResponseModel):
    """A table with updates in place."""

    name: str
    live_rows: int = Field(description="An estimate.")
    dead_rows: int = Field(description="An estimate: row versions no longer visible.")
    bytes: int
    vacuumed_at: Time | None
    autovacuumed_at: Time | None
    analyzed_at: Time | None


class Day(ResponseModel):
    """A daily partition."""

    day: date = Field(description="In UTC.")
    rows: int = Field(description="An estimate.")
    bytes: int


class Partitions(ResponseModel):
    """The daily partitions of a table."""

    parent: str
    days: Count
    days_ahead: int = Field(
        description="Consecutive days after today that have a partition; -1: today has none."
    )
    days_behind: int = Field(description="Days from the oldest partition to today.")
    rows: int = Field(description="An estimate.")
    bytes: int
    newest: list[Day]


class DatabaseNow(ResponseModel):
    """State of the database."""

    at: Time = Field(description="By the database's clock.")
    clock_ahead_seconds: float = Field(
        description="How far it is ahead of this machine's clock; negative: behind."
    )
    name: str
    server_version: str
    bytes: int
    connections_max: int
    revision: str | None = Field(description="Its schema revision.")
    revision_needed: str
    snapshots: list[Snapshot] = Field(description="The 10 oldest.")
    connections: list[Connections]
    tables: list[Table]
    partitions: list[Partitions]
    needs: list[Need]


@router.get("", summary="Show the state of the database.")
def show_database(session: Viewer) -> DatabaseNow:
    """Return snapshots, sizes, partitions, connections and schema revision."""
    with session.open(Database) as store:
        found = store.report()
    if not session.may(AccessRole.OPERATOR):
        found["snapshots"] = [{**each, "query": ""} for each in found["snapshots"]]
    return DatabaseNow.model_validate(found)
