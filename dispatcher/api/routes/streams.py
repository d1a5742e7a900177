"""Streams: what the sinks write, and which checkpoint each has adopted."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import Field

from holdfast.dispatcher.api.access import Admin, Viewer
from holdfast.dispatcher.api.requests import Name, Reason, RequestBody, Text
from holdfast.dispatcher.api.responses import Count, OnePage, ResponseModel, Time
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.states import EndpointState, QuarantineReason

router = APIRouter(prefix="/streams", tags=["streams"])


class Adopted(ResponseModel):
    """A stream, its adopted checkpoint, and the run that writes it."""

    name: str
    query_id: UUID | None = Field(description="Query id of the adopted checkpoint.")
    epoch: int = Field(description="Epoch of the newest run; older runs are fenced.")
    run_id: UUID | None
    checkpoint: str | None = Field(description="Path of its checkpoint, as given to the sink.")
    adopted_at: Time | None
    started_at: Time | None = Field(description="When the run started.")


class ListedStream(Adopted):
    """A stream with its newest batch."""

    last_batch_id: int | None
    last_written_at: Time | None


class StreamList(OnePage):
    """Every stream, by name."""

    streams: list[ListedStream]


class Checkpoint(ResponseModel):
    """A checkpoint that has written batches."""

    query_id: UUID
    batches: Count
    first_batch_id: int
    last_batch_id: int
    first_written_at: Time
    last_written_at: Time


class ListedBatch(ResponseModel):
    """A batch of a stream."""

    batch_id: int
    batch_no: int = Field(description="Its number among the batches of all streams.")
    written_at: Time
    row_count: Count
    entry_count: Count
    duplicate_count: Count
    differing_count: Count = Field(description="Duplicates with different content.")
    suppressed_count: Count
    quarantined_count: Count
    epoch: int
    run_id: UUID
    routed_at: Time | None
    divergences: Count = Field(description="Number of diverged replays.")


class Undelivered(ResponseModel):
    """Entries of a stream that an endpoint has not got yet."""

    endpoint: str
    state: EndpointState
    undelivered: Count
    oldest_written_at: Time = Field(description="Oldest of the counted entries.")
    dead_letters: Count
    complete: bool = Field(
        description="False: the count is a lower bound, because counting stops at 500 lanes of a"
        " kind, or at 100 entries of a lane."
    )


class OpenRows(ResponseModel):
    """Unresolved quarantined rows of a stream."""

    reason: QuarantineReason
    open: Count
    oldest_quarantined_at: Time


class DivergedReplay(ResponseModel):
    """A replay whose content differs from the ledger."""

    id: int
    query_id: UUID
    batch_id: int
    differing_count: Count
    rows_now: Count
    rows_then: Count
    found_at: Time


class Stream(Adopted):
    """A stream with its totals over every checkpoint, and what needs attention."""

    created_at: Time
    batches: Count
    rows: Count = Field(description="entries + duplicates + suppressed + quarantined.")
    entries: Count
    duplicates: Count
    differing: Count
    suppressed: Count
    quarantined: Count
    unrouted_batches: Count
    unrouted_entries: Count
    checkpoints: list[Checkpoint]
    newest_batches: list[ListedBatch] = Field(description="At most 5.")
    undelivered: list[Undelivered]
    open_quarantine: list[OpenRows]
    divergences: list[DivergedReplay] = Field(description="The newest 20.")


@router.get("", summary="List streams.")
def list_streams(session: Viewer) -> StreamList:
    """Return every stream with its newest batch."""
    with session.open(Streams) as store:
        return StreamList.model_validate({"streams": store.streams()})


@router.get("/{name}", summary="Show a stream.")
def show_stream(session: Viewer, name: Name) -> Stream:
    """Return a stream with its totals, checkpoints, newest batches and what needs attention."""
    with session.open(Streams) as store:
        return Stream.model_validate(store.stream(name))


class Adoption(RequestBody):
    """A checkpoint to adopt: its batches are accepted from now on."""

    query_id: Annotated[UUID, Field(strict=False)] = Field(
        description="The id in the new checkpoint's `metadata` file."
    )
    force: bool = Field(
        False,
        description="Accept the id although the stream has no batch of it. The server does not read"
        " checkpoints; the command does.",
    )
    reason: Reason


class AdoptedStream(ResponseModel):
    """A stream and the query id that it accepts."""

    name: str
    query_id: UUID | None
    previous_query_id: UUID | None
    epoch: int
    adopted_at: Time | None
    changed: bool = Field(description="False: it was already adopted.")


@router.post("/{name:path}/adopt", summary="Accept batches of another checkpoint.")
def adopt_checkpoint(
    session: Admin, name: Annotated[Text, Path(description="The stream's name.")], given: Adoption
) -> AdoptedStream:
    """Existing decisions keep their keys; none is repeated. The current run is fenced."""
    with session.open(Streams) as store:
        row = store.adopt(
            name, given.query_id, given.reason, found_in=lambda _: None, force=given.force
        )
    return AdoptedStream.model_validate(row)
