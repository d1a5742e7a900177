"""Batches: the ledger of a stream, and replays that were not what was written."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Viewer
from dispatcher.api.models import Name
from dispatcher.api.paging import AskBody, BatchId, Limit, Number
from dispatcher.api.routes.streams import ListedBatch
from dispatcher.api.shapes import Count, KeyText, PagedByNumber, Shown, Time
from dispatcher.operators.streams.store import Streams
from sink.contract.states import DivergenceSide, EndpointState, QuarantineReason

router = APIRouter(prefix="/batches", tags=["batches"])

QueryId = Annotated[
    UUID | None, Query(description="The checkpoint; the one that the stream has adopted, if none.")
]


class BatchPage(PagedByNumber):
    """Batches of one checkpoint, the newest first."""

    query_id: UUID | None
    batches: list[ListedBatch]


class Offsets(Shown):
    """Where a batch was read from, as Spark wrote it down."""

    batch_time: Time | None = None
    watermark: Time | None = None
    sources: list[Any] | None = Field(None, description="One each; null: nothing is read from it.")
    text: str | None = Field(None, description="In place of the others: not in Spark's form.")


class LedgerRow(Shown):
    """A batch's row of the ledger."""

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


class OfType(Shown):
    """Entries of a batch by type, as far as they are stored."""

    type: str
    entries: Count
    subjects: Count


class BatchDelivery(Shown):
    """What became of a batch's entries at an endpoint."""

    endpoint: str
    state: EndpointState
    entries: Count
    delivered: Count
    waiting: Count
    dead_letters: Count


class Refused(Shown):
    """Rows of a batch that were set aside."""

    reason: QuarantineReason
    rows: Count
    open: Count


class Divergence(Shown):
    """A replay of a batch that brought other content."""

    id: int
    digest: str
    run_id: UUID
    row_count: Count
    quarantined_count: Count
    differing_count: Count
    found_at: Time
    kept_count: Count = Field(description="Of the differing rows, so many are on record.")


class Batch(LedgerRow):
    """A batch, and what became of its rows."""

    types: list[OfType]
    delivery: list[BatchDelivery]
    refused: list[Refused]
    divergences: list[Divergence]


class DifferingRow(Shown):
    """A key in which a replay and what was written differ."""

    key: KeyText
    side: DivergenceSide
    subject: str | None
    subject_then: str | None
    type: str | None
    type_then: str | None
    sequence: int | None
    occurred_at: Time | None
    body_then: str | None = Field(description="null unless bodies are asked for.")
    body_now: str | None = Field(description="null unless bodies are asked for.")


class Difference(Shown):
    """A replay that diverged, row by row beside what was written."""

    batch: LedgerRow
    divergence: Divergence
    others: list[int] = Field(description="The numbers of its other diverged replays.")
    rows: list[DifferingRow]


@router.get("", summary="List batches of a stream.")
def list_batches(
    session: Viewer,
    stream: Name,
    query_id: QueryId = None,
    limit: Limit = 50,
    before: Annotated[BatchId | None, Query(description="Only ids below this one.")] = None,
) -> BatchPage:
    """Return the batches of one checkpoint, the newest first."""
    with session.open(Streams) as store:
        meant, rows = store.page(stream, query_id, limit=limit, before=before)
    older = rows[-1]["batch_id"] if len(rows) == limit else None
    return BatchPage.model_validate({"query_id": meant, "batches": rows, "next_before": older})


@router.get("/{stream}/{batch_id}", summary="Show a batch.")
def show_batch(session: Viewer, stream: Name, batch_id: BatchId, query_id: QueryId = None) -> Batch:
    """Return a batch's row of the ledger, where it was read from, and what became of it."""
    with session.open(Streams) as store:
        return Batch.model_validate(store.batch(stream, batch_id, query_id))


@router.get("/{stream}/{batch_id}/diff", summary="Compare a diverged replay.")
def show_batch_diff(
    session: Viewer,
    stream: Name,
    batch_id: BatchId,
    query_id: QueryId = None,
    divergence: Annotated[Number | None, Query(description="Which; the newest, if none.")] = None,
    limit: Limit = 100,
    body: AskBody = False,
) -> Difference:
    """Return what a replay would have written, beside what was; 404 where none diverged."""
    bodies.allow(session, body=body)
    with session.open(Streams) as store:
        found = store.divergence(stream, batch_id, query_id, number=divergence, limit=limit)
    if body:
        number = found["divergence"]["id"]
        bodies.note(session, "entry.read", f"{stream} batch {batch_id}", divergence=number)
    else:
        found["rows"] = [bodies.without(row, "body_then", "body_now") for row in found["rows"]]
    return Difference.model_validate(found)
