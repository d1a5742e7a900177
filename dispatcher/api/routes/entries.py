"""Entries: the decisions in the outbox and their delivery state."""

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import (
    AskBody,
    Cursor,
    KeyText,
    Limit,
    Name,
)
from holdfast.dispatcher.api.routes.attempts import AttemptPage, WantedAttempts, page_of
from holdfast.dispatcher.api.routes.why import Why, explaining
from holdfast.dispatcher.operators.attempts.store import AttemptPlace, Attempts
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.why.store import Why as Explains

router = APIRouter(prefix="/entries", tags=["entries"])


@router.get("/{key}/why", summary="Explain an entry.")
def explain_entry(
    session: Viewer,
    key: KeyText,
    endpoint: Annotated[Name | None, Query(description="Only this endpoint.")] = None,
) -> Why:
    """Return when it was delivered, or what it waits for and what resolves that.

    404: the key was never seen.
    """
    with explaining(session, Explains) as store:
        return Why.of(key, store.explain_key(key_of(key), "", endpoint))


@router.get("/{key}/attempts", summary="List an entry's attempts.")
def list_entry_attempts(
    session: Viewer,
    key: KeyText,
    wanted: WantedAttempts,
    limit: Limit = 50,
    before: Cursor | None = None,
    body: AskBody = False,
) -> AttemptPage:
    """Return the attempts of an entry, the newest first."""
    bodies.allow(session, body=body)
    place = None if before is None else AttemptPlace.of(before)
    with session.open(Attempts) as store:
        rows, older = store.of_key(key_of(key), wanted, limit=limit, before=place)
    return page_of(session, rows, older, key, body=body)
