"""Entries: the decisions in the outbox and their delivery state."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import (
    AskBody,
    BatchId,
    Cursor,
    KeyText,
    Limit,
    Name,
    Text,
    Times,
    key_of,
)
from holdfast.dispatcher.api.responses import Count, Paged, ResponseModel, Time
from holdfast.dispatcher.api.responses import KeyText as ShownKey
from holdfast.dispatcher.api.routes.attempts import AttemptPage, WantedAttempts, page_of
from holdfast.dispatcher.api.routes.why import Why, explaining
from holdfast.dispatcher.operators.attempts.store import AttemptPlace, Attempts
from holdfast.dispatcher.operators.entries.rules import Stage
from holdfast.dispatcher.operators.entries.store import Entries, Place, Wanted
from holdfast.dispatcher.operators.why.store import Why as Explains
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import DeadReason, Outcome

router = APIRouter(prefix="/entries", tags=["entries"])


class ListedEntry(ResponseModel):
    """An entry, without its body."""

    key: ShownKey
    subject: str
    sequence: int = Field(description="Counted from 1 for each subject, without gaps.")
    type: str
    occurred_at: Time
    written_at: Time = Field(description="When its batch was written.")
    priority: int
    batch_no: int
    subject_id: int
    stream: str
    query_id: UUID
    batch_id: int


class EntryPage(Paged):
    """Entries, the newest first."""

    entries: list[ListedEntry]


class EntryBatch(ResponseModel):
    """The batch that wrote an entry."""

    stream: str
    query_id: UUID
    batch_id: int
    batch_no: int
    written_at: Time
    routed_at: Time | None


class Standing(ResponseModel):
    """Delivery state of an entry at an endpoint."""

    endpoint: str
    state: Stage
    at: Time | None = Field(
        description="When it was delivered or became a dead letter, is due, or its lease ends."
    )
    behind_sequence: int | None
    held_up: str | None
    attempts: Count
    last_outcome: Outcome | None
    last_tried_at: Time | None
    dead_reason: DeadReason | None = None
    dead_detail: str | None = None


class Entry(ResponseModel):
    """An entry with its batch and delivery state."""

    key: ShownKey
    subject_id: int
    subject: str
    sequence: int
    type: str
    occurred_at: Time
    written_at: Time
    priority: int
    traceparent: str | None
    body: str | None = Field(description="Byte for byte; null unless bodies are requested.")
    batch: EntryBatch
    delivery: list[Standing]


@router.get("", summary="List entries.")
def list_entries(
    session: Viewer,
    times: Times,
    subject: Annotated[Text | None, Query(description="Only this subject.")] = None,
    stream: Annotated[Name | None, Query(description="Only this stream.")] = None,
    batch: Annotated[BatchId | None, Query(description="Only this batch of `stream`.")] = None,
    query_id: Annotated[
        UUID | None,
        Query(description="The query id of `batch`'s checkpoint. Default: the adopted one."),
    ] = None,
    type: Annotated[Text | None, Query(description="Only this type.")] = None,  # noqa: A002 - the parameter's name
    limit: Limit = 50,
    before: Cursor | None = None,
) -> EntryPage:
    """Return entries without their bodies, the newest first.

    A page scans about 100,000 entries: for a rare type it may be short or empty although
    `next_before` shows that older ones follow.
    """
    if batch is not None and stream is None:
        raise CommandError(
            "`batch` needs `stream`. Nothing was changed.", ExitCode.USAGE, code="missing_parameter"
        )
    if query_id is not None and batch is None:
        raise CommandError(
            "`query_id` needs `batch`. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    wanted = Wanted(subject, type, stream, batch, query_id, times.since, times.until)
    place = None if before is None else Place.of(before)
    with session.open(Entries) as store:
        rows, older = store.newest(wanted, limit=limit, before=place)
    last = None if older is None else str(older)
    return EntryPage.model_validate({"entries": rows, "next_before": last})


@router.get("/{key}", summary="Show an entry.")
def show_entry(session: Viewer, key: KeyText, body: AskBody = False) -> Entry:
    """Return an entry, its batch, and its delivery state at each endpoint."""
    bodies.allow(session, body=body)
    with session.open(Entries) as store:
        found = store.entry(key_of(key))
    if body:
        bodies.note(session, "entry.read", key)
    else:
        delivery = [bodies.without_answers(each, "dead_detail") for each in found["delivery"]]
        found = bodies.without(found, "body") | {"delivery": delivery}
    return Entry.model_validate(found)


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
