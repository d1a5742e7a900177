"""Entries: a filtered list, and one entry from its batch to its receipts."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.fields import (
    SINCE_HINT,
    UNTIL_HINT,
    Field,
    given,
    when_of,
    whole,
)
from holdfast.dispatcher.api.console.frame.guard import Login, Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import SHOWN, wants_bodies
from holdfast.dispatcher.api.console.rendering.curl import copy_of
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.console.rendering.timeline import decided, timelines
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.routes.why import CachedTrace, explaining
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.entries.store import SCAN_MAX, Entries, Place, Wanted
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.sink.contract.canonical import NotCanonical
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

ROWS = 50

KeyText = Annotated[str, Path(max_length=64)]


def operating(person: Person) -> Login:
    """Return the login of an operator; raises 403 for a viewer."""
    if not person.may(AccessRole.OPERATOR):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"this requires the role operator; {person.session.holder.name} is a viewer. Nothing"
            " was changed.",
        )
    return person


@router.get("/entries")
def list_entries(
    request: Request,
    person: Person,
    subject: str = "",
    type: str = "",  # noqa: A002 - the parameter's name
    stream: str = "",
    batch: str = "",
    since: str = "",
    until: str = "",
    before: str = "",
) -> Response:
    """Show a page of entries, the newest first."""
    number, in_stream = whole("batch", batch), given(stream)
    begin, end = when_of("since", since), when_of("until", until)
    if number is not None and in_stream is None:
        raise CommandError(
            "a batch needs its stream: give both. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    place = Place.of(before) if before else None
    asked = {
        "subject": subject,
        "type": type,
        "stream": stream,
        "batch": batch,
        "since": since,
        "until": until,
    }
    none_because = None
    with person.session.open(Entries) as store:
        wanted = Wanted(
            subject=given(subject),
            type=given(type),
            stream=in_stream,
            batch_id=number,
            since=store.moment(begin),
            until=store.moment(end),
        )
        try:
            rows, older = store.newest(wanted, limit=ROWS, before=place)
        except CommandError as refused:
            if refused.exit_code is not ExitCode.NOTHING_MATCHED:
                raise
            rows, older, none_because = [], None, str(refused)
    return page(
        request,
        person,
        "decisions/entries.html",
        rows=rows,
        none_because=none_because,
        filtered=any(asked.values()),
        looked_at=SCAN_MAX,
        page_rows=ROWS,
        fields=(
            Field("subject", "Subject", subject, "m_482"),
            Field("type", "Type", type, "payout_hold.block"),
            Field("stream", "Stream", stream),
            Field("batch", "Batch", batch),
            Field("since", "Written since", since, SINCE_HINT),
            Field("until", "Written before", until, UNTIL_HINT),
        ),
        newest=link("/entries", **asked) if before else None,
        older=link("/entries", **asked, before=str(older)) if older else None,
    )


@router.get("/entries/{key}")
def show_entry(request: Request, person: Person, key: KeyText, body: str = "") -> Response:
    """Show one entry: its explanation, timeline and attempts; its body on demand."""
    wanted, asked = key_of(key), wants_bodies(request, person, body)
    with explaining(person.session, CachedTrace) as store:
        store.shows_answers = asked
        explained = store.explain_key(wanted, "")
        if explained.entry is None:
            unknown = explained.verdict is Verdict.UNKNOWN
            return page(
                request,
                person,
                "decisions/entry_unknown.html",
                status=404 if unknown else 200,
                key=wanted.text,
                answer=explained.answer,
            )
        found = store.trace(wanted, body=asked)
    if asked:
        bodies.note(person.session, "entry.read", wanted.text)
    return page(
        request,
        person,
        "decisions/entry.html",
        key=wanted.text,
        entry=found["entry"],
        batch=found["batch"],
        decided=decided(found["entry"]["decision"]),
        answers=explained.at_endpoints,
        notes=explained.notes,
        ways=timelines(found),
        tried=found["endpoints"],
        older_attempts=found["older_attempts"],
        acts=person.may(AccessRole.OPERATOR),
        asked=asked,
        with_body=link(f"/entries/{wanted.text}", body=SHOWN),
        with_request=link(f"/entries/{wanted.text}/curl", body=SHOWN),
    )


@router.get("/entries/{key}/curl")
def show_request(
    request: Request, person: Annotated[Login, Depends(operating)], key: KeyText, body: str = ""
) -> Response:
    """Show an entry's request to each endpoint as a `curl` command, on demand."""
    wanted, asked = key_of(key), wants_bodies(request, person, body)
    with person.session.open(Entries) as store:
        entry = store.entry(wanted)
    with person.session.open(Endpoints) as endpoints:
        copies = [
            copy_of(entry, endpoints.endpoint(each["endpoint"])) for each in entry["delivery"]
        ]
    if asked:
        bodies.note(person.session, "entry.read", wanted.text)
    return page(
        request,
        person,
        "decisions/entry_curl.html",
        key=wanted.text,
        copies=copies,
        asked=asked,
        with_request=link(f"/entries/{wanted.text}/curl", body=SHOWN),
    )


def key_of(text: str) -> Key:
    """Parse a key as receivers get it; raises `CommandError` (usage) for any other text."""
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(
            f"{error}. Nothing was changed.", ExitCode.USAGE, code="invalid_key"
        ) from None
