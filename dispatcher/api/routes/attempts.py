"""Attempts: every try, and what came of it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Session, Viewer
from dispatcher.api.models import Name
from dispatcher.api.paging import AskBody, Cursor, Limit, Times
from dispatcher.api.shapes import Json, Paged, Shown, Time
from dispatcher.operators.attempts.store import Attempts, NewestPlace, Wanted
from dispatcher.operators.common.session import Row
from sink.contract.states import Outcome

router = APIRouter(prefix="/attempts", tags=["attempts"])


class Attempt(Shown):
    """A try of an entry at an endpoint."""

    subject: str
    endpoint_id: int
    endpoint: str
    sequence: int
    number: int = Field(description="From 1, for each entry and endpoint.")
    finished_at: Time
    outcome: Outcome
    status: int | None = Field(description="HTTP's; null where no answer came.")
    duration_ms: int | None
    error: str | None
    response: str | None = Field(
        description="What the receiver answered, its beginning; null unless bodies are asked for."
    )
    receipt: Json | None = Field(description="What the receiver signed; null without one.")
    retry_at: Time | None


class AttemptPage(Paged):
    """Attempts, the newest first."""

    attempts: list[Attempt]


def _wanted(
    times: Times,
    endpoint: Annotated[Name | None, Query(description="Only at this endpoint.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only with this outcome.")] = None,
) -> Wanted:
    return Wanted(endpoint, outcome and outcome.value, times.since, times.until)


WantedAttempts = Annotated[Wanted, Depends(_wanted)]


def page_of(
    session: Session, rows: list[Row], older: object, target: str, *, body: bool
) -> AttemptPage:
    """Return a page; with what receivers answered where `body` asks for it, which is noted."""
    if body:
        bodies.note(session, "entry.read", target, attempts=len(rows))
    else:
        rows = [bodies.without(row, "response") for row in rows]
    place = None if older is None else str(older)
    return AttemptPage.model_validate({"attempts": rows, "next_before": place})


@router.get("", summary="List the attempts of everybody.")
def list_attempts(
    session: Viewer,
    wanted: WantedAttempts,
    limit: Limit = 50,
    before: Cursor | None = None,
    body: AskBody = False,
) -> AttemptPage:
    """Return attempts of all subjects, the newest first.

    With `endpoint`, or for what was delivered, a page is looked for among 100,000 attempts at
    most: it may be short, or empty, though `next_before` says that older ones follow.
    """
    bodies.allow(session, body=body)
    place = None if before is None else NewestPlace.of(before)
    with session.open(Attempts) as store:
        rows, older = store.of_all_subjects(wanted, limit=limit, before=place)
    return page_of(session, rows, older, "attempts", body=body)
