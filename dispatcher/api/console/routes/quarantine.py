"""Quarantine: rows that were set aside; put back, dismiss."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.frame.guard import Acting, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import (
    ROWS,
    acts,
    wants_bodies,
)
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.quarantine.actions import (
    target,
)
from holdfast.dispatcher.operators.quarantine.rules import is_entry, why_not_as_kept
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.states import AccessRole

router = APIRouter()
strict = [Depends(no_others)]

Number = Annotated[int, Path(ge=1, le=2**63 - 1), DIGITS]
Chosen = Annotated[list[str], Query()]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]


@router.get("/quarantine/{number}", dependencies=strict)
def show_row(request: Request, person: Person, number: Number, text: str = "") -> Response:
    """Show one row, to operators with its text on demand, which is audited."""
    with person.session.open(Quarantine) as store:
        [row] = store.take([number])
        waiting = store.proposals(limit=ROWS, target=target(number))
    asked = wants_bodies(request, person, text)
    if asked:
        bodies.note(person.session, "quarantine.read", f"quarantine {number}")
    return page(
        request,
        person,
        "decisions/quarantined.html",
        row=row if asked else bodies.without(row, "row"),
        asked=asked,
        as_entry=is_entry(row),
        not_as_kept=why_not_as_kept(row),
        proposals=waiting,
        acts=acts(person),
    )
