"""Entries: the newest, found by filters, and one from its batch to its receipt."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from dispatcher.api import bodies
from dispatcher.api.console.explaining import Told
from dispatcher.api.console.forms.forms import Field, given, moment, whole
from dispatcher.api.console.frame.guard import Login, Person
from dispatcher.api.console.frame.pages import page
from dispatcher.api.console.frame.screens import SHOWN, shows
from dispatcher.api.console.frame.templates_setup import link
from dispatcher.api.console.rendering.copies import copy_of
from dispatcher.api.console.rendering.timeline import decided, ways
from dispatcher.api.explained import explaining
from dispatcher.api.strict import no_others
from dispatcher.operators.endpoints.store import Endpoints
from dispatcher.operators.entries.store import SCAN_MAX, Entries, Place, Wanted
from dispatcher.operators.why.rules import Verdict
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

ROWS = 50

KeyText = Annotated[str, Path(max_length=64)]


def operating(person: Person) -> Login:
    """Return who looks, where that is an operator; raises 403 for a viewer."""
    if not person.may(AccessRole.OPERATOR):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"this needs the role operator, and {person.session.holder.name} is a viewer. Nothing"
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
    wanted = Wanted(
        subject=given(subject),
        type=given(type),
        stream=given(stream),
        batch_id=whole("batch", batch),
        since=moment("since", since),
        until=moment("until", until),
    )
    if wanted.batch_id is not None and wanted.stream is None:
        raise CommandError(
            "a batch needs its stream: name that too. Nothing was changed.", ExitCode.USAGE
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
        try:
            rows, older = store.newest(wanted, limit=ROWS, before=place)
        except CommandError as refused:
            if refused.exit_code is not ExitCode.NOTHING_MATCHED:
                raise
            rows, older, none_because = [], None, str(refused)
    return page(
        request,
        person,
        "entries.html",
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
            Field("since", "Written since", since, "2026-11-02T12:15Z"),
            Field("until", "Written before", until, "2026-11-02T13:00Z"),
        ),
        newest=link("/entries", **asked) if before else None,
        older=link("/entries", **asked, before=str(older)) if older else None,
    )


@router.get("/entries/{key}")
def show_entry(request: Request, person: Person, key: KeyText, body: str = "") -> Response:
    """Show one entry: why it is where it is, its way, its attempts; its body on demand."""
    wanted, asked = key_of(key), shows(request, person, body)
    with explaining(person.session, Told) as store:
        store.shows_answers = asked
        explained = store.explain_key(wanted, "")
        if explained.entry is None:
            unknown = explained.verdict is Verdict.UNKNOWN
            return page(
                request,
                person,
                "entry_unknown.html",
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
        "entry.html",
        key=wanted.text,
        entry=found["entry"],
        batch=found["batch"],
        decided=decided(found["entry"]["decision"]),
        answers=explained.at_endpoints,
        notes=explained.notes,
        ways=ways(found),
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
    """Show what is sent to each endpoint of an entry, as `curl` would send it; on demand."""
    wanted, asked = key_of(key), shows(request, person, body)
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
        "entry_curl.html",
        key=wanted.text,
        copies=copies,
        asked=asked,
        with_request=link(f"/entries/{wanted.text}/curl", body=SHOWN),
    )


def key_of(text: str) -> Key:
    """Read a key as receivers get it; raises `CommandError` for anything else."""
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None
