"""Cancelling one entry that has not left: first what will happen, then the change."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.forms.fields import filled
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import redirect
from holdfast.dispatcher.api.console.routes.entries import KeyText
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.cancellations.verbs import title_of, what_it_does
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]


@router.get("/entries/{key}/cancel")
def ask_cancel(request: Request, person: Person, key: KeyText, endpoint: str = "") -> Response:
    """Ask for confirmation to cancel an entry, at one endpoint or at all."""
    wanted, where = key_of(key), filled(endpoint)
    with person.session.open(Entries) as store:
        entry = store.entry(wanted)
        names = store.beside(Cancellations).preview(wanted, entry, where)
    return ask(
        request,
        person,
        Question(
            title=f"Cancel {title_of(entry)}",
            action=f"/entries/{wanted.text}/cancel",
            button="Cancel it",
            back=f"/entries/{wanted.text}",
            says=what_it_does(entry, where, names),
            warns=("This is for good. A reissue decides it again, under a new key.",),
            kept=() if where is None else (("endpoint", where),),
            danger=True,
        ),
    )


@router.post("/entries/{key}/cancel")
def cancel_entry(request: Request, person: Operator, key: KeyText, form: Form) -> Response:
    """Cancel it, if nothing of it was begun there."""
    wanted, reason, where = key_of(key), reason_of(form), filled(form.get("endpoint", ""))
    with person.session.open(Entries) as store:
        store.beside(Cancellations).cancel(wanted, store.entry(wanted), where, reason)
    message = f"Cancelled: it is not sent to {'any endpoint' if where is None else where}."
    return redirect(request, person, f"/entries/{wanted.text}", message)
