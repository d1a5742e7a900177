"""Streams: what the sinks write, and the checkpoints that are adopted."""

from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.models import Name
from dispatcher.api.shapes import Count, Shown, Time
from dispatcher.operators.streams.store import Streams
from sink.contract.states import EndpointState, QuarantineReason

router = APIRouter(prefix="/streams", tags=["streams"])


class Adopted(Shown):
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


class StreamList(Shown):
    """Every stream, by name."""

    streams: list[ListedStream]


class Checkpoint(Shown):
    """A checkpoint that has written something."""

    query_id: UUID
    batches: Count
    first_batch_id: int
    last_batch_id: int
    first_written_at: Time
    last_written_at: Time


class ListedBatch(Shown):
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


class Undelivered(Shown):
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


class OpenRows(Shown):
    """Rows of a stream that were set aside and that nobody has resolved."""

    reason: QuarantineReason
    open: Count
    oldest_quarantined_at: Time


class DivergedReplay(Shown):
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
    with session.open(Streams) as store:
        return StreamList.model_validate({"streams": store.streams()})


@router.get("/{name}", summary="Show a stream.")
def show_stream(session: Viewer, name: Name) -> Stream:
    """Return a stream with its totals, checkpoints, newest batches and what needs a look."""
    with session.open(Streams) as store:
        return Stream.model_validate(store.stream(name))
