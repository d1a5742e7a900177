"""Attempts: each request for an entry and its outcome."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Session, Viewer
from holdfast.dispatcher.api.requests import AskBody, Cursor, Limit, Name, Times
from holdfast.dispatcher.api.responses import Json, Paged, ResponseModel, Time
from holdfast.dispatcher.operators.attempts.store import AttemptFilter, Attempts, NewestPlace
from holdfast.dispatcher.operators.common.session import Row
from holdfast.sink.contract.states import Outcome

router = APIRouter(prefix="/attempts", tags=["attempts"])


class Attempt(ResponseModel):
    """An attempt to deliver an entry to an endpoint."""

    subject: str
    endpoint_id: int
    endpoint: str
    sequence: int
    number: int = Field(description="Counted from 1 for each entry and endpoint.")
    finished_at: Time
    outcome: Outcome
    status: int | None = Field(description="HTTP status; null if no response came.")
    duration_ms: int | None
    error: str | None
    response: str | None = Field(
        description="Beginning of the receiver's response; null unless bodies are requested."
    )
    receipt: Json | None = Field(description="The receiver's signed receipt; null without one.")
    retry_at: Time | None


class AttemptPage(Paged):
    """Attempts, the newest first."""

    attempts: list[Attempt]


def _wanted(
    times: Times,
    endpoint: Annotated[Name | None, Query(description="Only this endpoint.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only with this outcome.")] = None,
) -> AttemptFilter:
    return AttemptFilter(endpoint, outcome and outcome.value, times.since, times.until)


WantedAttempts = Annotated[AttemptFilter, Depends(_wanted)]


def page_of(
    session: Session, rows: list[Row], older: object, target: str, *, body: bool
) -> AttemptPage:
    """Return a page, with receivers' responses if `body` requests them; that is audited."""
    if body:
        bodies.note(session, "entry.read", target, attempts=len(rows))
    else:
        rows = [bodies.without(row, "response") for row in rows]
    place = None if older is None else str(older)
    return AttemptPage.model_validate({"attempts": rows, "next_before": place})


@router.get("", summary="List the attempts of all subjects.")
def list_attempts(
    session: Viewer,
    wanted: WantedAttempts,
    limit: Limit = 50,
    before: Cursor | None = None,
    body: AskBody = False,
) -> AttemptPage:
    """Return attempts of all subjects, the newest first.

    With `endpoint`, or with the outcome `delivered`, a page scans at most 100,000 attempts: it may
    be short or empty although `next_before` shows that older ones follow.
    """
    bodies.allow(session, body=body)
    place = None if before is None else NewestPlace.of(before)
    with session.open(Attempts) as store:
        rows, older = store.of_all_subjects(wanted, limit=limit, before=place)
    return page_of(session, rows, older, "attempts", body=body)
