"""Suppressed decisions: recorded and not written; an overtaken one is written after all."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Admin, Viewer
from dispatcher.api.models import Given, Name, Reason
from dispatcher.api.paging import AskBody, Cursor, KeyText, Limit, Text, Times, key_of
from dispatcher.api.routes.entries import EntryBatch
from dispatcher.api.shapes import KeyText as ShownKey
from dispatcher.api.shapes import Paged, Shown, Time
from dispatcher.operators.suppressed.actions import write_overtaken
from dispatcher.operators.suppressed.store import (
    OvertakenDecisions,
    Place,
    SuppressedDecisions,
    Wanted,
)
from sink.contract.exits import CommandError, ExitCode
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
    written_as: ShownKey | None = Field(
        description="The key under which it was written after all; null where it was not."
    )


class ToWrite(Given):
    """An overtaken decision: propose to write it, or write what was approved."""

    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Write what was approved; null proposes it."
    )
    despite_later: bool = Field(
        False, description="Propose it also if later decisions of the subject were suppressed."
    )
    reason: Reason


class LaterDecision(Shown):
    """A decision that occurred later and was suppressed too."""

    key: ShownKey
    type: str
    occurred_at: Time
    cause: SuppressedCause


class NewestOfSubject(Shown):
    """The newest decision of a subject, in all streams."""

    last_sequence: int
    last_type: str | None
    last_occurred_at: Time | None


class SuppressedWrite(Shown):
    """An overtaken decision that is proposed to be written, or was written."""

    key: ShownKey
    new_key: ShownKey
    subject: str
    type: str
    written: bool
    detail: str | None = Field(None, description="Where it was written; null where proposed.")
    proposal: UUID
    sha256: str | None = Field(None, description="Of the entry; null where written.")
    newest: NewestOfSubject | None = Field(None, description="Null where written.")
    later: int | None = Field(
        None,
        description="Decisions of the subject in this stream that occurred later and were"
        " suppressed too; null where written.",
    )
    newest_later: LaterDecision | None = Field(
        None, description="The newest of these: it says how the subject stands."
    )
    planned_by: str | None = Field(None, description="Null where written.")
    approved_by: str | None = None


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


@router.post("/{key}/write", summary="Write an overtaken decision after all, under a new key.")
def write_suppressed(
    request: Request, session: Admin, key: KeyText, given: ToWrite
) -> SuppressedWrite:
    """Propose to write it, or write what a second person approved: once, however often asked."""
    wanted = key_of(key)
    if given.proposal is not None and given.despite_later:
        raise CommandError(
            "give `proposal` without `despite_later`: what was approved says the rest. Nothing was"
            " changed.",
            ExitCode.USAGE,
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
