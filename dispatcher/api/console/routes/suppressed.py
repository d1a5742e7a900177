"""Suppressed decisions: recorded but not written, because they repeat one or were overtaken."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.confirm import one_of, values
from holdfast.dispatcher.api.console.forms.fields import (
    SINCE_HINT,
    UNTIL_HINT,
    Field,
    given,
    when_of,
)
from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import ROWS, acts, wants_bodies
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.console.routes.entries import KeyText, key_of
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.suppressed.rules import write_command
from holdfast.dispatcher.operators.suppressed.store import Place, SuppressedDecisions, Wanted
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import SuppressedCause

router = APIRouter(dependencies=[Depends(no_others)])


@router.get("/suppressed")
def list_suppressed(
    request: Request,
    person: Person,
    stream: str = "",
    subject: str = "",
    cause: str = "",
    since: str = "",
    until: str = "",
    before: str = "",
) -> Response:
    """Show a page of suppressed decisions, the newest first, without their content."""
    why = one_of("cause", cause, SuppressedCause)
    begin, end = when_of("since", since), when_of("until", until)
    place = Place.of(before) if before else None
    none_because = None
    with person.session.open(SuppressedDecisions) as store:
        wanted = Wanted(
            stream=given(stream),
            subject=given(subject),
            cause=why,
            since=store.moment(begin),
            until=store.moment(end),
        )
        try:
            rows, older = store.newest(wanted, limit=ROWS, before=place)
        except CommandError as refused:
            if refused.exit_code is not ExitCode.NOTHING_MATCHED:
                raise
            rows, older, none_because = [], None, str(refused)
    asked = {
        "stream": stream,
        "subject": subject,
        "cause": cause,
        "since": since,
        "until": until,
    }
    return page(
        request,
        person,
        "decisions/suppressed.html",
        rows=rows,
        none_because=none_because,
        filtered=any(asked.values()),
        fields=(
            Field("stream", "Stream", stream),
            Field("subject", "Subject", subject, "m_482"),
            Field("cause", "Cause", cause, choices=values(SuppressedCause)),
            Field("since", "Suppressed since", since, SINCE_HINT),
            Field("until", "Suppressed before", until, UNTIL_HINT),
        ),
        newest=link("/suppressed", **asked) if before else None,
        older=link("/suppressed", **asked, before=str(older)) if older else None,
    )


@router.get("/suppressed/{key}")
def show_suppressed(request: Request, person: Person, key: KeyText, body: str = "") -> Response:
    """Show one suppressed decision, to operators with its content on demand, which is audited."""
    with person.session.open(SuppressedDecisions) as store:
        found = store.decision(key_of(key))
    asked = wants_bodies(request, person, body)
    if asked:
        bodies.note(person.session, "suppressed.read", found["key"])
    else:
        found = bodies.without(found, "key_parts", "data")
    lost = found["cause"] == SuppressedCause.OVERTAKEN and found["written_as"] is None
    return page(
        request,
        person,
        "decisions/suppressed_decision.html",
        found=found,
        asked=asked,
        acts=acts(person),
        write=write_command(found["key"]) if lost else None,
    )
