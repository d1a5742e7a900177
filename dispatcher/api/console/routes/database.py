"""Database: old snapshots, sizes, partitions, connections, schema revision."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import acts
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.database.store import Database

router = APIRouter(dependencies=[Depends(no_others)])

DAYS_SHOWN = 14


@router.get("/database")
def show_database(request: Request, person: Person) -> Response:
    """Show the database. Queries of other sessions are shown to operators only."""
    with person.session.open(Database) as store:
        found = store.report()
    return page(
        request,
        person,
        "system/database.html",
        found=found,
        sessions=sum(each["sessions"] for each in found["connections"]),
        oldest=found["snapshots"][0]["age_seconds"] if found["snapshots"] else None,
        days_shown=DAYS_SHOWN,
        acts=acts(person),
    )
