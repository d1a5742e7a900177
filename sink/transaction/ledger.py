"""The ledger's row of a batch, and what happens when the batch is replayed.

The caller holds the stream's lock, so a result stays valid until its COMMIT.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
from psycopg.rows import DictRow

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.errors import ReplayDiverged
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.database import execute
from holdfast.sink.transaction.divergence import compare, in_words


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a stream. `epoch` grows with each run and fences the older ones."""

    stream: str
    query_id: UUID
    run_id: UUID
    epoch: int
    checkpoint: str | None = None
    """The query's checkpointLocation, for messages; None where the sink was not given it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """`rows = entries + duplicates + suppressed + quarantined`; `differing` are duplicates too.

    A suppressed entry repeats its subject's type, or was overtaken by a newer entry.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> twice = pa.concat_tables([decisions, decisions])
    >>> sink.apply(twice, Identity(query_id, first_run, 0)).counts
    Counts(rows=4, entries=2, duplicates=2, differing=0, suppressed=0, quarantined=0)
    """

    rows: int
    entries: int
    duplicates: int
    differing: int
    suppressed: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    stream: str
    batch_id: int
    batch_no: int
    written_at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Written(_Outcome):
    """The batch is in the outbox, written by this call; of `outcome`, whoever wrote it.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> isinstance(sink.apply(decisions, Identity(query_id, first_run, 0)), Written)
    True
    """


@dataclass(frozen=True, slots=True)
class Replayed(_Outcome):
    """The batch was already in the outbox, with the same content; nothing was written.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> first = sink.apply(decisions, Identity(query_id, first_run, 0))
    >>> again = sink.apply(decisions, Identity(query_id, second_run, 0))
    >>> type(again).__name__, again.counts == first.counts
    ('Replayed', True)
    """


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger's row of a batch."""

    run_id: UUID
    epoch: int
    digest: bytes
    batch_no: int
    written_at: datetime
    counts: Counts


def read(
    connection: psycopg.Connection, run: Run, batch_ids: Collection[int]
) -> dict[int, Recorded]:
    """Return the rows of batches of the run's stream and query, by batch id: those it has."""
    rows = execute(
        connection,
        "batch/read_batch",
        stream=run.stream,
        query_id=run.query_id,
        batch_ids=list(batch_ids),
    )
    return {row["batch_id"]: _recorded(row) for row in rows}


def outcome(connection: psycopg.Connection, stream: str, batch_id: int | None) -> Written | None:
    """Return a batch of the stream's query; the newest one for None. None: the ledger has none."""
    row = execute(connection, "batch/outcome", stream=stream, batch_id=batch_id).fetchone()
    if row is None:
        return None
    recorded = _recorded(row)
    return Written(stream, row["batch_id"], recorded.batch_no, recorded.written_at, recorded.counts)


def _recorded(row: DictRow) -> Recorded:
    return Recorded(
        run_id=row["run_id"],
        epoch=row["epoch"],
        digest=row["digest"],
        batch_no=row["batch_no"],
        written_at=row["written_at"],
        counts=Counts(
            rows=row["row_count"],
            entries=row["entry_count"],
            duplicates=row["duplicate_count"],
            differing=row["differing_count"],
            suppressed=row["suppressed_count"],
            quarantined=row["quarantined_count"],
        ),
    )


def accept(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    recorded: Recorded,
    *,
    commit_unknown: bool,
    future_tolerance: timedelta,
) -> Written | Replayed:
    """Return the outcome of a batch that the ledger has.

    With `commit_unknown` this run's own row is `Written`. Raises `ReplayDiverged` when the content
    is not the recorded one.
    """
    if recorded.digest != batch.digest:
        raise _diverged(connection, run, batch_id, batch, recorded, future_tolerance)
    ours = commit_unknown and (recorded.run_id, recorded.epoch) == (run.run_id, run.epoch)
    outcome = Written if ours else Replayed
    return outcome(run.stream, batch_id, recorded.batch_no, recorded.written_at, recorded.counts)


def _diverged(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    recorded: Recorded,
    future_tolerance: timedelta,
) -> ReplayDiverged:
    difference = compare(
        connection,
        batch,
        recorded.batch_no,
        run_id=run.run_id,
        rows_then=recorded.counts.rows,
        quarantined_then=recorded.counts.quarantined,
        limit_then=recorded.written_at + future_tolerance,
    )
    return ReplayDiverged(
        f"stream {run.stream!r}: batch {batch_id} of query {run.query_id} came back with other"
        f" content than was written on {rfc3339(recorded.written_at)}: {in_words(difference)}."
        f" Nothing was written now, and what was written then stands;"
        f" `holdfast batch diff {run.stream} {batch_id}` shows it row by row. Restore what made it"
        " (the code, the policy, the source's files) and restart; or start a new checkpoint, whose"
        f" recorded keys repeat nothing, and adopt it with `holdfast stream adopt {run.stream}"
        " --query-id ID --reason TEXT` (the id is in the checkpoint's file `metadata`).",
        difference,
    )
