"""Batches: the ledger of a stream, and replays that diverged from it."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import AskBody, BatchId, Limit, Name, Number
from holdfast.dispatcher.api.responses import Count, KeyText, PagedByNumber, ResponseModel, Time
from holdfast.dispatcher.api.routes.streams import ListedBatch
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.states import DivergenceSide, EndpointState, QuarantineReason

router = APIRouter(prefix="/batches", tags=["batches"])

QueryId = Annotated[
    UUID | None,
    Query(description="The checkpoint's query id. Default: the one the stream has adopted."),
]


class BatchPage(PagedByNumber):
    """Batches of one checkpoint, the newest first."""

    query_id: UUID | None
    batches: list[ListedBatch]


class PartitionRange(ResponseModel):
    """What a batch read from a partition of Kafka."""

    topic: str
    partition: int
    from_: int | None = Field(alias="from", description="The first offset; null if not known.")
    until: int | None = Field(description="The offset behind the last one; null if not known.")
    count: Count | None = Field(
        description="until - from; records are fewer in a compacted topic or with transactions."
    )
    note: str | None = Field(description="Why something is not known.")


class SourceRange(ResponseModel):
    """What a batch read from a source: the difference from the batch before it."""

    source: Count = Field(description="Its position in `sources`, from 0.")
    kind: Literal["kafka", "log", "nothing", "other"] = Field(
        description="`log`: files, or the ticks of the idle clock; `nothing`: no data yet."
    )
    partitions: list[PartitionRange] | None = Field(
        None, description="Of Kafka: those that were read, or have a note."
    )
    count: Count | None = Field(
        None, description="Of Kafka: over all partitions; null if one is not known."
    )
    unread: Count | None = Field(None, description="Of Kafka: number of the other partitions.")
    first_entry: Count | None = Field(
        None, description="Of `log`: the first entry of the source's log; null if not known."
    )
    last_entry: Count | None = Field(
        None, description="Of `log`: the last entry; null if nothing was read."
    )
    offset: Any = Field(None, description="Of `other`: how far it is read.")
    note: str | None = Field(description="Why something is not known.")


class Offsets(ResponseModel):
    """Source offsets of a batch, as Spark recorded them, and what the batch read."""

    batch_time: Time | None = None
    watermark: Time | None = None
    sources: list[Any] | None = Field(
        None, description="How far each source is read; null: it had no data yet."
    )
    ranges: list[SourceRange] = Field(description="What the batch read, one for each source.")
    text: str | None = Field(
        None, description="Instead of the other members, if it is not in Spark's format."
    )


class LedgerRow(ResponseModel):
    """A batch's ledger row."""

    stream: str
    query_id: UUID
    batch_id: int
    batch_no: int
    run_id: UUID
    epoch: int
    row_count: Count
    entry_count: Count
    duplicate_count: Count
    differing_count: Count
    suppressed_count: Count
    quarantined_count: Count
    digest: str = Field(description="SHA-256 over the hashes of its rows, in hex.")
    source_offsets: Offsets | None
    written_at: Time
    routed_at: Time | None


class OfType(ResponseModel):
    """Stored entries of a batch by type."""

    type: str
    entries: Count
    subjects: Count


class BatchDelivery(ResponseModel):
    """Delivery state of a batch's entries at an endpoint."""

    endpoint: str
    state: EndpointState
    entries: Count
    delivered: Count
    waiting: Count
    dead_letters: Count


class Refused(ResponseModel):
    """Quarantined rows of a batch."""

    reason: QuarantineReason
    rows: Count
    open: Count


class Divergence(ResponseModel):
    """A replay of a batch with different content."""

    id: int
    digest: str
    run_id: UUID
    row_count: Count
    quarantined_count: Count
    differing_count: Count
    found_at: Time
    kept_count: Count = Field(description="Number of differing rows that are stored.")


class Batch(LedgerRow):
    """A batch, and what became of its rows."""

    types: list[OfType]
    delivery: list[BatchDelivery]
    refused: list[Refused]
    divergences: list[Divergence]


class DifferingRow(ResponseModel):
    """A key in which a replay differs from what was written."""

    key: KeyText
    side: DivergenceSide
    subject: str | None
    subject_then: str | None
    type: str | None
    type_then: str | None
    sequence: int | None
    occurred_at: Time | None
    body_then: str | None = Field(description="null unless bodies are requested.")
    body_now: str | None = Field(description="null unless bodies are requested.")


class Difference(ResponseModel):
    """A diverged replay, row by row, next to what was written."""

    batch: LedgerRow
    divergence: Divergence
    others: list[int] = Field(description="Ids of the batch's other diverged replays.")
    rows: list[DifferingRow]


@router.get("", summary="List batches of a stream.")
def list_batches(
    session: Viewer,
    stream: Name,
    query_id: QueryId = None,
    limit: Limit = 50,
    before: Annotated[
        BatchId | None, Query(description="Only batches with an id below this one.")
    ] = None,
) -> BatchPage:
    """Return the batches of one checkpoint, the newest first."""
    with session.open(Streams) as store:
        meant, rows = store.page(stream, query_id, limit=limit, before=before)
    older = rows[-1]["batch_id"] if len(rows) == limit else None
    return BatchPage.model_validate({"query_id": meant, "batches": rows, "next_before": older})


@router.get("/{stream}/{batch_id}", summary="Show a batch.")
def show_batch(session: Viewer, stream: Name, batch_id: BatchId, query_id: QueryId = None) -> Batch:
    """Return a batch's ledger row, its source offsets, and the delivery state of its entries."""
    with session.open(Streams) as store:
        return Batch.model_validate(store.batch(stream, batch_id, query_id))


@router.get("/{stream}/{batch_id}/diff", summary="Compare a diverged replay.")
def show_batch_diff(
    session: Viewer,
    stream: Name,
    batch_id: BatchId,
    query_id: QueryId = None,
    divergence: Annotated[
        Number | None, Query(description="The divergence's id. Default: the newest.")
    ] = None,
    limit: Limit = 100,
    body: AskBody = False,
) -> Difference:
    """Return what a replay would have written, next to what was written; 404 if none diverged."""
    bodies.allow(session, body=body)
    with session.open(Streams) as store:
        found = store.divergence(stream, batch_id, query_id, number=divergence, limit=limit)
    if body:
        number = found["divergence"]["id"]
        bodies.note(session, "entry.read", f"{stream} batch {batch_id}", divergence=number)
    else:
        found["rows"] = [bodies.without(row, "body_then", "body_now") for row in found["rows"]]
    return Difference.model_validate(found)
