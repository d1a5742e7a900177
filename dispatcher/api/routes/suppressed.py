"""Suppressed decisions: recorded and not written, because they repeat one or were overtaken."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Viewer
from dispatcher.api.models import Name
from dispatcher.api.paging import AskBody, Cursor, KeyText, Limit, Text, Times, key_of
from dispatcher.api.routes.entries import EntryBatch
from dispatcher.api.shapes import KeyText as ShownKey
from dispatcher.api.shapes import Paged, Shown, Time
from dispatcher.store.suppressed import Place, SuppressedDecisions, Wanted
from sink.contract.states import SuppressedCause

router = APIRouter(prefix="/suppressed", tags=["suppressed"])


class ListedDecision(Shown):
    """A suppressed decision, without its content."""

    key: ShownKey
    subject: str
    type: str
    occurred_at: Time
    priority: int
    cause: SuppressedCause
    suppressed_at: Time = Field(description="When its batch was written.")
    batch_no: int
    stream: str
    query_id: UUID
    batch_id: int


class SuppressedPage(Paged):
    """Suppressed decisions, the newest first."""

    suppressed: list[ListedDecision]


class ComparedState(Shown):
    """What a decision of the stream about the subject is compared with now."""

    stream: str
    last_type: str
    last_occurred_at: Time
    updated_at: Time


class SuppressedDecision(Shown):
    """A suppressed decision with its batch."""

    key: ShownKey
    subject_id: int
    subject: str
    type: str
    occurred_at: Time
    priority: int
    traceparent: str | None
    cause: SuppressedCause
    suppressed_at: Time
    key_parts: list[str] | None = Field(description="Null unless bodies are asked for.")
    data: str | None = Field(
        description="JSON, byte for byte as it would have been sent; null unless bodies are asked"
        " for."
    )
    batch: EntryBatch
    state: ComparedState | None


@router.get("", summary="List suppressed decisions.")
def list_suppressed(
    session: Viewer,
    times: Times,
    stream: Annotated[Name | None, Query(description="Only of this stream.")] = None,
    subject: Annotated[Text | None, Query(description="Only about this subject.")] = None,
    cause: Annotated[SuppressedCause | None, Query(description="Only for this.")] = None,
    limit: Limit = 50,
    before: Cursor | None = None,
) -> SuppressedPage:
    """Return decisions without their content, the newest first."""
    wanted = Wanted(stream, subject, cause, times.since, times.until)
    place = None if before is None else Place.of(before)
    with session.open(SuppressedDecisions) as store:
        rows, older = store.newest(wanted, limit=limit, before=place)
    last = None if older is None else str(older)
    return SuppressedPage.model_validate({"suppressed": rows, "next_before": last})


@router.get("/{key}", summary="Show a suppressed decision.")
def show_suppressed(session: Viewer, key: KeyText, body: AskBody = False) -> SuppressedDecision:
    """Return a decision and its batch, with its content where that is asked for."""
    bodies.allow(session, body=body)
    with session.open(SuppressedDecisions) as store:
        found = store.decision(key_of(key))
    if body:
        bodies.note(session, "suppressed.read", key)
    else:
        found = bodies.without(found, "key_parts", "data")
    return SuppressedDecision.model_validate(found)
