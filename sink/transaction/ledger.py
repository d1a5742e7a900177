"""The ledger's row of a batch, and what happens when the batch is replayed.

The caller holds the stream's lock, so a result stays valid until its COMMIT.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
from psycopg.rows import DictRow

from holdfast.sink.contract.acceptance import accepted_query_id
from holdfast.sink.errors import ReplayDiverged
from holdfast.sink.rows.outcome import (
    Accepted,
    Counts,
    Recorded,
    Replayed,
    Run,
    Written,
    diverged,
)
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.database import execute
from holdfast.sink.transaction.divergence import compare


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


def outcome(
    connection: psycopg.Connection, stream: str, query_id: UUID | None, batch_id: int | None
) -> Written | None:
    """Return a batch of a query, by default of the adopted one; the newest batch for None.

    Of a batch with an accepted replay that is written, it is the replay. None: there is no batch.
    """
    row = execute(
        connection, "batch/outcome", stream=stream, query_id=query_id, batch_id=batch_id
    ).fetchone()
    if row is None:
        return None
    recorded = _recorded(row)
    run = Run(stream, row["query_id"], recorded.run_id, recorded.epoch)
    for accepted in _accepted_runs(connection, run, recorded).values():
        added = read(connection, accepted, [row["batch_id"]]).get(row["batch_id"])
        if added is not None and added.batch_no > recorded.batch_no:
            recorded = added
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


def replayed(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    recorded: Recorded,
    *,
    commit_unknown: bool,
    future_tolerance: timedelta,
) -> Written | Replayed | Accepted:
    """Return the outcome of a batch that the ledger has, or other content that is to be written.

    With `commit_unknown` this run's own row is `Written`. Raises `ReplayDiverged` when the content
    is neither the recorded one nor one that a person accepted.
    """
    if recorded.digest != batch.digest:
        limit = recorded.written_at + future_tolerance
        accepted = _accepted_runs(connection, run, recorded)
        of_replay = accepted.get(batch.digest)
        if of_replay is None:
            raise _diverged(connection, run, batch_id, batch, recorded, accepted, limit)
        added = read(connection, of_replay, [batch_id]).get(batch_id)
        if added is None:
            return Accepted(of_replay, limit)
        recorded = added
    ours = commit_unknown and (recorded.run_id, recorded.epoch) == (run.run_id, run.epoch)
    outcome = Written if ours else Replayed
    return outcome(run.stream, batch_id, recorded.batch_no, recorded.written_at, recorded.counts)


def _accepted_runs(
    connection: psycopg.Connection, run: Run, recorded: Recorded
) -> dict[bytes, Run]:
    """Return, by its digest, the run that writes each accepted replay of a batch."""
    rows = execute(connection, "rows/accepted_digests", batch_no=recorded.batch_no)
    digests = [row["digest"] for row in rows]
    return {each: replace(run, query_id=accepted_query_id(run.query_id, each)) for each in digests}


def _diverged(
    connection: psycopg.Connection,
    run: Run,
    batch_id: int,
    batch: Content,
    recorded: Recorded,
    accepted: dict[bytes, Run],
    limit: datetime,
) -> ReplayDiverged:
    added = [read(connection, each, [batch_id]).get(batch_id) for each in accepted.values()]
    difference = compare(
        connection,
        batch,
        [recorded.batch_no, *(each.batch_no for each in added if each is not None)],
        query_id=run.query_id,
        batch_id=batch_id,
        run_id=run.run_id,
        rows_then=recorded.counts.rows,
        quarantined_then=recorded.counts.quarantined,
        limit_then=limit,
    )
    return diverged(run, batch_id, recorded, difference)
