"""Dispatcher processes, running and crashed."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.dispatchers.store import Dispatchers

router = APIRouter(dependencies=[Depends(no_others)])


@router.get("/dispatchers")
def list_dispatchers(request: Request, person: Person) -> Response:
    """Show every dispatcher that did not stop normally."""
    with person.session.open(Dispatchers) as store:
        rows = store.instances()
    alive = sum(row["alive"] and not row["draining"] for row in rows)
    return page(request, person, "system/dispatchers.html", rows=rows, alive=alive)
