"""Streams: what the sinks write, and which checkpoint each has adopted."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import Field

from dispatcher.api.access import Admin, Viewer
from dispatcher.api.requests import Name, Reason, RequestBody, Text
from dispatcher.api.responses import Count, ResponseModel, Time
from dispatcher.operators.streams.operator import OperatorStore
from dispatcher.operators.streams.store import Lineage
from sink.contract.states import EndpointState, QuarantineReason

router = APIRouter(prefix="/streams", tags=["streams"])


class Adopted(ResponseModel):
    """A stream, the checkpoint that it has adopted, and the run that writes it."""

    name: str
    query_id: UUID | None = Field(description="The adopted checkpoint.")
    epoch: int = Field(description="Of the newest run; an older one is refused.")
    run_id: UUID | None
    checkpoint: str | None = Field(description="Where its checkpoint is, as the sink was told.")
    adopted_at: Time | None
    started_at: Time | None = Field(description="The run's.")


class ListedStream(Adopted):
    """A stream with its newest batch."""

    last_batch_id: int | None
    last_written_at: Time | None


class StreamList(ResponseModel):
    """Every stream, by name."""

    streams: list[ListedStream]


class Checkpoint(ResponseModel):
    """A checkpoint that has written something."""

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
    differing_count: Count = Field(description="Of the duplicates: with other content.")
    suppressed_count: Count
    quarantined_count: Count
    epoch: int
    run_id: UUID
    routed_at: Time | None
    divergences: Count = Field(description="Replays of it that brought other content.")


class Undelivered(ResponseModel):
    """What an endpoint still has to get of a stream."""

    endpoint: str
    state: EndpointState
    undelivered: Count
    oldest_created_at: Time = Field(description="Of what was counted.")
    dead_letters: Count
    complete: bool = Field(
        description="False: at least so much. It has 500 lanes of a kind behind, or 100"
        " entries of one lane."
    )


class OpenRows(ResponseModel):
    """Rows of a stream that were set aside and that nobody has resolved."""

    reason: QuarantineReason
    open: Count
    oldest_quarantined_at: Time


class DivergedReplay(ResponseModel):
    """A replay that brought other content than the ledger has."""

    id: int
    query_id: UUID
    batch_id: int
    differing_count: Count
    rows_now: Count
    rows_then: Count
    found_at: Time


class Stream(Adopted):
    """A stream with its totals over every checkpoint, and what needs a look."""

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
    newest_batches: list[ListedBatch] = Field(description="5 at most.")
    undelivered: list[Undelivered]
    open_quarantine: list[OpenRows]
    divergences: list[DivergedReplay] = Field(description="The newest 20.")


@router.get("", summary="List streams.")
def list_streams(session: Viewer) -> StreamList:
    """Return every stream with its newest batch."""
    with session.open(OperatorStore) as store:
        return StreamList.model_validate({"streams": store.streams()})


@router.get("/{name}", summary="Show a stream.")
def show_stream(session: Viewer, name: Name) -> Stream:
    """Return a stream with its totals, checkpoints, newest batches and what needs a look."""
    with session.open(Lineage) as store:
        return Stream.model_validate(store.stream(name))


class Adoption(RequestBody):
    """A checkpoint whose batches are accepted from now on."""

    query_id: Annotated[UUID, Field(strict=False)] = Field(
        description="The id in the new checkpoint's `metadata` file."
    )
    force: bool = Field(
        False,
        description="Believe the id, though the stream has no batch of it. The server looks into no"
        " checkpoint: the command does.",
    )
    reason: Reason


class AdoptedStream(ResponseModel):
    """A stream, and the query id that it accepts."""

    name: str
    query_id: UUID | None
    previous_query_id: UUID | None
    epoch: int
    adopted_at: Time | None
    changed: bool = Field(description="False: it was so already.")


@router.post("/{name:path}/adopt", summary="Accept batches of another checkpoint.")
def adopt_checkpoint(
    session: Admin, name: Annotated[Text, Path(description="Of the stream.")], given: Adoption
) -> AdoptedStream:
    """Decisions made before keep their keys: none repeats. The run in progress is fenced."""
    with session.open(OperatorStore) as store:
        row = store.adopt(
            name, given.query_id, given.reason, found_in=lambda _: None, force=given.force
        )
    return AdoptedStream.model_validate(row)
