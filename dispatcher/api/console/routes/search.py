"""The search box: a key, a subject, or one entry of a subject."""

import re
from http import HTTPStatus

from fastapi import APIRouter, Depends
from fastapi.responses import RedirectResponse, Response

from holdfast.dispatcher.api.console.forms.fields import filled
from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.routes.why import CachedTrace, explaining
from holdfast.dispatcher.operators.subjects.store import SubjectFilter, Subjects
from holdfast.sink.contract.exits import CommandError, ExitCode

router = APIRouter(dependencies=[Depends(no_others)])

KEY = re.compile(r"hf_[0-9a-f]{32}")
SEQUENCE = re.compile(r"[0-9]{1,18}\Z")


@router.get("/search")
def search(person: Person, q: str = "") -> Response:
    """Redirect to the entry or subject that `q` names, else to the subjects with that prefix."""
    sought = (filled(q) or "").strip()
    if KEY.fullmatch(sought):
        return _to(f"/entries/{sought}")
    if not sought:
        return _to("/entries")
    if _is_subject(person, sought):
        return _to(link("/subjects/show", name=sought))
    if (parts := entry_of_subject(sought)) is not None:
        key = _key_of(person, *parts)
        if key is not None:
            return _to(f"/entries/{key}")
    return _to(link("/subjects", prefix=sought))


def entry_of_subject(sought: str) -> tuple[str, int] | None:
    """Return the subject and the sequence that a text names; None if it names none.

    Parsed by hand in one pass, because a regular expression would backtrack quadratically on
    spaces.

    >>> entry_of_subject("m_1 # 7"), entry_of_subject("m_1  7"), entry_of_subject("m_17")
    (('m_1', 7), ('m_1', 7), None)
    """
    found = SEQUENCE.search(sought)
    if found is None:
        return None
    before = sought[: found.start()]
    subject = before.rstrip()
    if subject.endswith("#"):
        subject = subject[:-1].rstrip()
    elif subject == before:
        return None
    return (subject, int(found[0])) if subject else None


def _is_subject(person: Person, name: str) -> bool:
    with person.session.open(Subjects) as store:
        rows, _ = store.subjects(SubjectFilter(name), limit=1)
    # Of all names with this prefix, the name itself comes first.
    return bool(rows) and bool(rows[0]["name"] == name)


def _key_of(person: Person, subject: str, sequence: int) -> str | None:
    """Return the key of an entry; None if it is not stored."""
    if sequence == 0:
        return None
    try:
        with explaining(person.session, CachedTrace) as store:
            entry = store.explain_sequence(subject, sequence).entry
    except CommandError as refused:
        if refused.exit_code is not ExitCode.NOTHING_MATCHED:
            raise
        return None
    return None if entry is None else str(entry["key"])


def _to(address: str) -> Response:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
