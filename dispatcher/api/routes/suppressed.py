"""Suppressed decisions: recorded but not written. An overtaken one can be written late."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Admin, Viewer
from holdfast.dispatcher.api.requests import (
    AskBody,
    Cursor,
    KeyText,
    Limit,
    Name,
    Reason,
    RequestBody,
    Text,
    Times,
    key_of,
)
from holdfast.dispatcher.api.responses import KeyText as ShownKey
from holdfast.dispatcher.api.responses import NewerDecision, Paged, ResponseModel, Time
from holdfast.dispatcher.api.routes.entries import EntryBatch
from holdfast.dispatcher.operators.suppressed.actions import write_overtaken
from holdfast.dispatcher.operators.suppressed.store import (
    OvertakenDecisions,
    Place,
    SuppressedDecisions,
    Wanted,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import SuppressedCause

router = APIRouter(prefix="/suppressed", tags=["suppressed"])


class ListedDecision(ResponseModel):
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


class ComparedState(ResponseModel):
    """The state with which a decision of the stream about the subject is compared now."""

    stream: str
    last_type: str
    last_occurred_at: Time
    updated_at: Time


class SuppressedDecision(ResponseModel):
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
    key_parts: list[str] | None = Field(description="null unless bodies are requested.")
    data: str | None = Field(
        description="JSON, byte for byte as it would have been sent; null unless bodies are"
        " requested."
    )
    batch: EntryBatch
    state: ComparedState | None
    written_as: ShownKey | None = Field(
        description="The key under which it was written late; null if it was not."
    )


class ToWrite(RequestBody):
    """An overtaken decision: propose to write it, or write what was approved."""

    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Write this approved proposal; null: propose it."
    )
    despite_later: bool = Field(
        False, description="Propose it although later decisions of the subject were suppressed."
    )
    reason: Reason


class LaterDecision(ResponseModel):
    """A decision that occurred later and was suppressed, too."""

    key: ShownKey
    type: str
    occurred_at: Time
    cause: SuppressedCause


class NewestOfSubject(ResponseModel):
    """The newest decision of a subject, in all streams."""

    last_sequence: int
    last_type: str | None
    last_occurred_at: Time | None


class SuppressedWrite(ResponseModel):
    """An overtaken decision: proposed, or written."""

    key: ShownKey
    new_key: ShownKey
    subject: str
    type: str
    written: bool
    detail: str | None = Field(None, description="Where it was written; null if only proposed.")
    proposal: UUID
    sha256: str | None = Field(None, description="SHA-256 of the entry; null if written.")
    newest: NewestOfSubject | None = Field(None, description="null if written.")
    overtakes: NewerDecision | None = Field(
        None, description="The newest decision if it occurred later, of another stream."
    )
    later: int | None = Field(
        None,
        description="Number of later decisions of the subject in this stream that were suppressed,"
        " too; null if written.",
    )
    newest_later: LaterDecision | None = Field(
        None, description="The newest of these, which determines the subject's current state."
    )
    planned_by: str | None = Field(None, description="null if written.")
    approved_by: str | None = None


@router.get("", summary="List suppressed decisions.")
def list_suppressed(
    session: Viewer,
    times: Times,
    stream: Annotated[Name | None, Query(description="Only this stream.")] = None,
    subject: Annotated[Text | None, Query(description="Only this subject.")] = None,
    cause: Annotated[
        SuppressedCause | None, Query(description="Only this reason or cause.")
    ] = None,
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
    """Return a decision and its batch, with its content if requested."""
    bodies.allow(session, body=body)
    with session.open(SuppressedDecisions) as store:
        found = store.decision(key_of(key))
    if body:
        bodies.note(session, "suppressed.read", key)
    else:
        found = bodies.without(found, "key_parts", "data")
    return SuppressedDecision.model_validate(found)


@router.post("/{key}/write", summary="Write an overtaken decision under a new key.")
def write_suppressed(
    request: Request, session: Admin, key: KeyText, given: ToWrite
) -> SuppressedWrite:
    """Propose to write it, or write what a second person approved. Idempotent."""
    wanted = key_of(key)
    if given.proposal is not None and given.despite_later:
        raise CommandError(
            "`proposal` and `despite_later` exclude each other. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    with session.open(OvertakenDecisions) as store:
        if given.proposal is None:
            told = store.propose_write(wanted, given.reason, despite_later=given.despite_later)
            found = {**told, "written": False}
        else:
            dsn = request.app.state.settings.dsn
            done = write_overtaken(dsn, store, wanted, given.proposal, given.reason)
            found = {**done, "written": True}
    return SuppressedWrite.model_validate(found)
